"""The same with the keys in another order, channels last, and states without an axis for layers."""

import keras
from keras import layers


def make():
    image, scale = keras.Input((4, 4, 3), name="image"), keras.Input((1,), name="scale")
    features = layers.Conv2D(6, 3, padding="same", activation="relu")(image)
    features = features * layers.Reshape((1, 1, 1))(scale)
    steps = layers.Reshape((16, 6))(features)
    rnn = layers.LSTM(5, return_sequences=True, return_state=True)
    sequence, hidden, cell = rnn(steps)
    outputs = {"cell": cell, "hidden": hidden, "map": features, "sequence": sequence}
    return keras.Model({"image": image, "scale": scale}, outputs)
