"""What exactly given configurations will do: one of them, or a table. Never price or clouds."""
