"""IP addresses, as Python's ``ipaddress`` reads them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address


def address_in(text: str) -> IPv4Address | IPv6Address | None:
    """The address that ``text`` spells; that of IPv4 where it is mapped into IPv6."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
