"""Reads an ONNX file as a workload: its graph as layers, its initialisers as weights.

======================  =========================================================================
module                  what it holds
======================  =========================================================================
``read``                from a path to a workload and its weights, or the reason why not
``forms``               forms of a file that compute the same, with operators written out
``logits``              where its logits are, and what loss is behind them
``reading``             what of a file is read: open sizes, inputs, one output
``joined``              several inputs as one
``bodies``              operators that ONNX defines by others, as those
``real_numbers``        truths and integers as real numbers
``real_rules``          what each operator of these is in real numbers
``real_parts``          the nodes that a rule writes, and their constants
``numbers_of_indices``  integers that look up rows and are computed with as well
``importer``            reads the graph from its input to its logits: the layer of each value
``layers``              the imported layers, and the reasons why a node cannot be imported
``views``               index maps: where each number of a value lies in the layer's own value
``rules``               a rule for each operator: the layer that it means, and its weights
``places``              numbers selected by constant indices, wherever they are
``slices``              padding, slicing, splitting and gathering
``transformers``        normalisations, GELU, attention, position tables, means, class tokens
``combining``           concatenations, sums and products of values
``affine``              arithmetic with constants: biases, and scales and shifts of channels
``tied_weights``        weights that several layers share
``check``               compares the canonical graph of the imported layers with the file
======================  =========================================================================
"""

from dlb.imported.read import ImportedModel, import_file

__all__ = ["ImportedModel", "import_file"]
