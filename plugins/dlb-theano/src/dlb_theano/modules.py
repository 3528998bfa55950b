"""Theano's max pooling, with the gradient that other frameworks have."""

from typing import Any

from theano.gradient import DisconnectedType
from theano.tensor.signal.pool import MaxPoolGrad, Pool


class FirstMaxPool(Pool):
    """Max pooling whose gradient goes to the first of equal values. Theano's goes to each of them."""

    def L_op(self, inputs: Any, outputs: Any, gradients: Any) -> Any:
        gradient = FirstMaxPoolGrad(self.ignore_border, ndim=self.ndim)(
            inputs[0], outputs[0], gradients[0], *inputs[1:]
        )
        return [gradient] + [DisconnectedType()() for _ in inputs[1:]]


class FirstMaxPoolGrad(MaxPoolGrad):
    """Theano's own code, with a flag for each window."""

    def c_code(self, *arguments: Any) -> str:
        code = super().c_code(*arguments)
        for own, changed in (
            ("// use the index to find", "bool taken = false;\n// use the index to find"),
            ("if (a == maximum){", "if (a == maximum && !taken){ taken = true;"),
        ):
            assert own in code
            code = code.replace(own, changed)
        return code

    def c_code_cache_version(self) -> Any:
        return super().c_code_cache_version() + ("first",)
