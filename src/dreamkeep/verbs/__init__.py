"""The verbs of `Keep`, one module for each family. They wire parts together; rules live in the layers below.

A verb has the same name here and in `Keep`, and its docstring is there. A family is a class: it is given the `KeepContext` and
the families that it needs. `families.py` makes them. What needs no other family is a function that is given the context.
"""
