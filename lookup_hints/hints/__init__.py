"""Text of a LOOKUP hint -> validated options, with the place of each mistake."""
