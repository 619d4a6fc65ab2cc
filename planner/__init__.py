"""tonnage turns a workload spec into the cheapest GPU infrastructure that meets it.

Words, one meaning each. Spec: what the user asked for. Workload: what runs (inference, batch,
workspace). Model: the weights that are served. Accelerator: one GPU or comparable chip.
Offer: an instance type in a region at a purchase option and price. Catalog: all offers of one
date. Layout: precision, TP, PP, EP and batch of one replica. Replica: one copy of the model that
answers requests. Pool: offers of one kind, counted. Fleet: all pools. Solution: the fleet that
was chosen. Binding: the constraint that costs money. Plan: the document that is reviewed and
applied. Graph: the cloud resources of a plan as data. Stack: a graph that runs. Engine: what
carries a graph out. World: the simulated clouds.
"""
