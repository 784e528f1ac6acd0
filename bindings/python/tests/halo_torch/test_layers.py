"""Random layers of every kind, on random shapes and grids, against one process."""

import pytest
from compare import compare
from layers import KINDS, random_case


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_layers_on_parts_equal_layers_of_the_full_tensor(kind):
    for seed in range(10):
        module, whole, axes = random_case(kind, seed)
        try:
            compare(module, whole, [axes], 1e-10)
        except Exception:
            print(f"seed {seed}: {module} on {tuple(whole.shape)}, {axes}")
            raise
