"""What the clouds sell and allow. Read-only: nothing here changes a cloud."""
