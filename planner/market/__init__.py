"""What can be bought, where and at which price, and which of it a spec allows. No speed."""
