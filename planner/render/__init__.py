"""A finished plan as text, markdown and JSON. No arithmetic: the numbers are the document's."""
