"""What `tonnage serve` is made of: the folder, the workers that plan, the guard, the pages."""
