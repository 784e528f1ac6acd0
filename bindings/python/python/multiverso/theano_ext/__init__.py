"""Multiverso's extensions for Theano, Lasagne and Keras, on PyTensor and Keras of today."""
