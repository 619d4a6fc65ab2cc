"""Training jobs: what a spec needs, which clusters do it, and what the run costs."""
