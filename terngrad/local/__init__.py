"""Local steps for programs of any framework.

Each process trains its model without an exchange. After H steps its helper
process exchanges the coded change of the parameters with the helpers of the
other processes and applies the outer optimizer. Only helpers use TensorFlow.
"""
