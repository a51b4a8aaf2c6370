"""The model: π0.5 and the networks it is made of, parameters, compilation."""
