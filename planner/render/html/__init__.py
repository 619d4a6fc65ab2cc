"""Reports as one HTML file each: no script, no network, a table behind every picture."""
