"""``lookup-hints shell``: a prompt at which statements are typed, completed, run and cancelled."""
