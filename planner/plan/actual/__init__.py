"""What a stack has really cost, by the cost exports of its cloud, beside what was planned."""
