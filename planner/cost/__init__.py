"""Cost lines, months and the time that machines run. Never speed."""
