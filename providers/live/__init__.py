"""Real clouds, asked without changing anything: sessions, errors, questions and answers."""
