"""Multiverso's extensions for Theano, Lasagne and Keras, on current PyTensor and Keras."""
