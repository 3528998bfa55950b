"""The same; Keras takes weight decay from the weights, and has another epsilon."""

import keras
import tensorflow as tf
from keras import layers


def make():
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(9, activation="tanh"),
            layers.Dropout(0.1),
            layers.Dense(3),
        ]
    )


def train(model, optimizer):
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(batch):
        with tf.GradientTape() as tape:
            loss = entropy(batch["y"], model(batch["x"], training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step


def momentum(model):
    return train(model, keras.optimizers.SGD(0.1, momentum=0.9))


def dampened(model):
    return train(model, keras.optimizers.SGD(0.01, momentum=0.9))


def decay(model):
    return train(model, keras.optimizers.SGD(0.1, weight_decay=0.01))


def adam(model):
    return train(model, keras.optimizers.Adam(0.01))
