"""Results of dlb in TensorBoard, MLflow and Weights & Biases, and as a part of a model card."""

__version__ = "0.2.0"
