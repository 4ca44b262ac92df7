"""Names of what can be seen of a model at work, beside its modules; known without torch."""

from typing import Final

#: Raw outputs: logits, or the regression value.
OUTPUTS: Final = "<outputs>"
#: What the model's body gets: standardised columns, or a parser's array.
COLUMNS: Final = "<columns>"
#: What the last linear layer gets.
EMBEDDING: Final = "<embedding>"
