//! The format of experiment files: every key, its kind, its default and what it is for.

use super::describe::Need::{Default, Optional, Required};
use super::describe::{Field, Kind, Need, Object};

const fn field(name: &'static str, kind: Kind, need: Need, about: &'static str) -> Field {
    Field { name, kind, need, about }
}

/// A whole file.
pub(super) static EXPERIMENT: Object = Object {
    name: "",
    about: "an experiment",
    fields: &[&[
        field("name", Kind::Text, Optional, "what run folders are called; the name of the file without it"),
        field("seed", Kind::Seed, Default("0"), "where all random numbers come from"),
        field(
            "precision",
            Kind::Choice(&["f32", "f64"]),
            Default("f32"),
            "the numbers that layers compute in",
        ),
        field("threads", Kind::Whole(1), Default("1"), "threads that a process computes with"),
        field(
            "deterministic",
            Kind::Flag,
            Optional,
            "whether all results have the same bits on any number of processes; they have without this key, unless workers share a \
             table or a layer is a program's own",
        ),
        field("epochs", Kind::Whole(0), Required, "how often the model sees all samples"),
        field("batch_size", Kind::Whole(1), Required, "samples between two updates"),
        field("data", Kind::OneOf(DATA), Required, "the data set"),
        field("model", Kind::OneOf(MODELS), Required, "what learns"),
        field(
            "rule",
            Kind::OneOf(RULES),
            Default("gradient_descent"),
            "the learning rule of layers without their own",
        ),
        field(
            "weights",
            Kind::OneOf(WEIGHTS),
            Default("auto_uniform"),
            "the first weights of layers without their own",
        ),
        field(
            "initial_weights",
            Kind::Text,
            Optional,
            "a .safetensors or .npz file with weights named layer/weights",
        ),
        field("distributed", Kind::OneOf(SPREADS), Optional, "how the model is spread over many processes"),
        field("test_every", Kind::Whole(1), Default("1"), "epochs between two tests"),
        field("save_every", Kind::Whole(1), Default("1"), "epochs between two checkpoints"),
        field("keep", Kind::Whole(1), Default("2"), "how many checkpoints stay"),
    ]],
};

const GRID: &[Field] = &[field(
    "grid",
    Kind::Text,
    Optional,
    "how many processes along each axis, such as data=2,h=2,w=2; as even as possible without it",
)];

pub(super) static SPREADS: &[&Object] = &[
    &Object { name: "data", about: "each process has some samples of a batch", fields: &[GRID] },
    &Object {
        name: "halo",
        about: "processes have parts of the rows and columns of each sample",
        fields: &[GRID],
    },
    &Object { name: "vector", about: "processes have parts of the inputs of each layer", fields: &[GRID] },
    &Object {
        name: "table",
        about: "each process has some samples of a batch, and shares weights through a table",
        fields: &[
            GRID,
            &[field(
                "consistency",
                Kind::Text,
                Default("async"),
                "how far processes may drift apart: async, ssp:3 (three batches), bsp (not at all)",
            )],
        ],
    },
];

const SAMPLES: &[Field] = &[
    field("sample", Kind::Number, Default("100"), "percent of the samples, chosen by the seed"),
    field("shuffle", Kind::Flag, Default("true"), "whether each epoch has an order of its own"),
    field("test_samples", Kind::Whole(0), Optional, "how many of the test samples are used, the first ones"),
];

const DOWNLOAD: &[Field] = &[field(
    "download",
    Kind::Flag,
    Default("false"),
    "whether what the folder lacks is downloaded; into the user's cache without a folder",
)];

pub(super) static DATA: &[&Object] = &[
    &Object {
        name: "mnist",
        about: "handwritten digits, 28 × 28",
        fields: &[
            &[field(
                "folder",
                Kind::Text,
                Optional,
                "where the four idx files are; a small sample without it",
            )],
            DOWNLOAD,
            SAMPLES,
        ],
    },
    &Object {
        name: "cifar10",
        about: "colour pictures of ten classes, 3 × 32 × 32",
        fields: &[
            &[field("folder", Kind::Text, Optional, "where the binary batches are")],
            DOWNLOAD,
            SAMPLES,
        ],
    },
    &Object { name: "iris", about: "Fisher's 150 flowers", fields: &[SAMPLES] },
    &Object {
        name: "uniform_random",
        about: "random numbers with random classes",
        fields: &[
            &[
                field("train", Kind::Whole(1), Required, "samples to learn from"),
                field("test", Kind::Whole(0), Required, "samples to test on"),
                field("shape", Kind::Sizes, Required, "the shape of a sample"),
                field("classes", Kind::Whole(1), Required, "how many classes"),
            ],
            SAMPLES,
        ],
    },
    &Object { name: "toy_images", about: "circles and ellipses, 3 × 32 × 32", fields: &[SAMPLES] },
    &Object {
        name: "images",
        about: "a folder with train/CLASS/*.png (or .pgm, .ppm), and perhaps test",
        fields: &[&[field("folder", Kind::Text, Required, "the folder")], SAMPLES],
    },
    &Object {
        name: "arrays",
        about: ".npy files, the first axis being the samples",
        fields: &[
            &[
                field("inputs", Kind::Text, Required, "inputs to learn from"),
                field("targets", Kind::Text, Optional, "their classes, or numbers"),
                field("test_inputs", Kind::Text, Optional, "inputs to test on"),
                field("test_targets", Kind::Text, Optional, "their classes, or numbers"),
            ],
            SAMPLES,
        ],
    },
    &Object {
        name: "own",
        about: "a data set that a program added to those of this crate",
        fields: &[OWN, SAMPLES],
    },
];

const OWN: &[Field] = &[
    field("kind", Kind::Text, Required, "the name under which the program added it"),
    field("settings", Kind::Any, Optional, "whatever it wants to know"),
];

static ANY_LAYER: Kind = Kind::OneOf(LAYERS);

const LAYER_LIST: &[Field] = &[
    field(
        "cost",
        Kind::Choice(&["cross_entropy", "softmax_cross_entropy", "sum_of_squares"]),
        Required,
        "what training makes small",
    ),
    field("layers", Kind::Many(&ANY_LAYER), Required, "the layers from the bottom"),
];

pub(super) static MODELS: &[&Object] = &[
    &Object { name: "network", about: "layers that learn targets", fields: &[LAYER_LIST] },
    &Object {
        name: "autoencoder",
        about: "layers that learn to give back their input",
        fields: &[LAYER_LIST],
    },
    &Object {
        name: "sparse_autoencoder",
        about: "groups of local filtering, L2 pooling and contrast, each pretrained; then a network",
        fields: &[
            LAYER_LIST,
            &[
                field("pretrain_epochs", Kind::Whole(0), Required, "epochs of pretraining for each group"),
                field("pretrain_rate", Kind::NotNegative, Required, "the learning rate of pretraining"),
                field(
                    "last_layer_epochs",
                    Kind::Whole(0),
                    Default("0"),
                    "first epochs that train the last layer alone",
                ),
                field("sparsity", Kind::NotNegative, Required, "what each pooled unit costs in pretraining"),
                field(
                    "tied_weights",
                    Kind::Flag,
                    Default("true"),
                    "whether filters reconstruct what they filtered",
                ),
                field(
                    "spot_check",
                    Kind::Flag,
                    Default("false"),
                    "whether to look for the unit that knows each class best: spot_check.csv",
                ),
                field(
                    "visualize",
                    Kind::Flag,
                    Default("false"),
                    "whether to draw the inputs that excite these units most: stimuli.png",
                ),
            ],
        ],
    },
];

const NAME: &[Field] = &[field("name", Kind::Text, Optional, "its name in checkpoints and messages")];
const LEARNS: &[Field] = &[
    field("weights", Kind::OneOf(WEIGHTS), Optional, "its first weights"),
    field("rule", Kind::OneOf(RULES), Optional, "its learning rule"),
];
const BIAS: &[Field] = &[
    field("bias", Kind::Flag, Default("true"), "whether each output map has a bias"),
    field("first_bias", Kind::Number, Default("0"), "the first value of biases"),
];
pub(super) const FUNCTIONS: Kind =
    Kind::Choice(&["identity", "logistic", "tanh", "rectified", "leaky", "softplus", "softmax"]);
const ACTIVATION: &[Field] = &[
    field("activation", FUNCTIONS, Default("identity"), "the function that follows"),
    field("slope", Kind::Number, Default("0.01"), "the slope of `leaky` below zero"),
];
const WINDOW: &[Field] = &[
    field("kernel", Kind::Pair(1), Required, "rows and columns of the window"),
    field("stride", Kind::Pair(1), Default("1"), "how far the window moves"),
    field("padding", Kind::Pair(0), Default("0"), "zeros beyond each border"),
];
const MAPS: &[Field] = &[field("maps", Kind::Whole(1), Required, "how many output maps")];

pub(super) static LAYERS: &[&Object] = &[
    &Object {
        name: "fully_connected",
        about: "every output from all inputs",
        fields: &[
            NAME,
            &[field("outputs", Kind::Whole(1), Required, "how many outputs")],
            BIAS,
            ACTIVATION,
            LEARNS,
        ],
    },
    &Object {
        name: "convolution",
        about: "the same filters at every place",
        fields: &[NAME, MAPS, WINDOW, BIAS, ACTIVATION, LEARNS],
    },
    &Object {
        name: "local",
        about: "filters of its own at every place",
        fields: &[
            NAME,
            MAPS,
            WINDOW,
            &[field("unit_rows", Kind::Flag, Default("true"), "whether each filter keeps length one")],
            ACTIVATION,
            LEARNS,
        ],
    },
    &Object {
        name: "pooling",
        about: "one number for each window of each map",
        fields: &[
            NAME,
            &[
                field(
                    "pool",
                    Kind::Choice(&["max", "average", "l2"]),
                    Default("max"),
                    "what becomes of a window",
                ),
                field("kernel", Kind::Pair(1), Required, "rows and columns of the window"),
                field("stride", Kind::Pair(1), Optional, "how far the window moves; its own size without it"),
                field("padding", Kind::Pair(0), Default("0"), "places beyond each border"),
            ],
        ],
    },
    &Object {
        name: "contrast",
        about: "local contrast normalisation",
        fields: &[NAME, &[field("kernel", Kind::Pair(1), Required, "odd sides of the window")]],
    },
    &Object {
        name: "response",
        about: "cross-map response normalisation: x / (1 + alpha·Σx²)^beta",
        fields: &[
            NAME,
            &[
                field("size", Kind::Whole(1), Default("5"), "how many maps dampen each other"),
                field("alpha", Kind::Number, Default("0.0001"), "how much"),
                field("beta", Kind::Number, Default("0.75"), "with which power"),
            ],
        ],
    },
    &Object {
        name: "dropout",
        about: "keeps numbers by chance while learning",
        fields: &[NAME, &[field("keep", Kind::Number, Default("0.5"), "the chance to be kept")]],
    },
    &Object {
        name: "batch_norm",
        about: "each map has mean 0 and deviation 1 over a batch, then a learned scale and shift",
        fields: &[
            NAME,
            &[
                field("kept", Kind::Number, Default("0.9"), "what stays of running averages with each batch"),
                field("epsilon", Kind::NotNegative, Default("0.001"), "added to the variance"),
                field("rule", Kind::OneOf(RULES), Optional, "its learning rule"),
            ],
            ACTIVATION,
        ],
    },
    &Object {
        name: "activation",
        about: "a function of each number",
        fields: &[
            NAME,
            &[
                field("function", FUNCTIONS, Required, "which"),
                field("slope", Kind::Number, Default("0.01"), "the slope of `leaky` below zero"),
            ],
        ],
    },
    &Object {
        name: "own",
        about: "a layer that a program added to those of this crate",
        fields: &[NAME, OWN, ACTIVATION, LEARNS],
    },
];

const STEP: &Object = &Object {
    name: "step",
    about: "times a ratio after every few epochs",
    fields: &[&[
        field("initial", Kind::NotNegative, Required, "the first value"),
        field("ratio", Kind::NotNegative, Required, "what it is multiplied by"),
        field("epochs", Kind::Whole(1), Required, "how often"),
    ]],
};
const LINEAR: &Object = &Object {
    name: "linear",
    about: "a straight line between two epochs",
    fields: &[&[
        field("initial", Kind::NotNegative, Required, "the first value"),
        field("start", Kind::Whole(0), Default("0"), "the last epoch of the first value"),
        field("saturate", Kind::Whole(0), Required, "the first epoch of the last value"),
        field("saturated", Kind::NotNegative, Required, "the last value"),
    ]],
};
pub(super) static SCHEDULES: &[&Object] = &[STEP, LINEAR];
const SCHEDULE: Kind = Kind::NumberOr(SCHEDULES);
const DECAY: Field =
    field("decay", Kind::NotNegative, Default("0"), "this times the weight is added to its gradient");
const RATE: Field = field("rate", SCHEDULE, Default("0.01"), "the learning rate, or a schedule");

pub(super) static RULES: &[&Object] = &[
    &Object { name: "gradient_descent", about: "w ← w − rate·g", fields: &[&[RATE, DECAY]] },
    &Object {
        name: "momentum",
        about: "v ← m·v − rate·g, w ← w + v",
        fields: &[&[RATE, DECAY, field("coefficient", SCHEDULE, Default("0.9"), "m, or a schedule")]],
    },
    &Object {
        name: "nesterov",
        about: "momentum with the gradient as if one had already moved",
        fields: &[&[RATE, DECAY, field("coefficient", SCHEDULE, Default("0.9"), "m, or a schedule")]],
    },
    &Object {
        name: "adadelta",
        about: "steps of the size of recent steps",
        fields: &[&[
            field("rate", SCHEDULE, Default("1"), "times each step"),
            DECAY,
            field("rho", Kind::BelowOne, Default("0.95"), "what stays of running averages"),
            field("epsilon", Kind::NotNegative, Default("1e-6"), "keeps divisions finite"),
        ]],
    },
    &Object {
        name: "adagrad",
        about: "rates that fall with the gradients seen",
        fields: &[&[
            RATE,
            DECAY,
            field("epsilon", Kind::NotNegative, Default("1e-8"), "keeps divisions finite"),
        ]],
    },
    &Object {
        name: "adam",
        about: "running averages of gradient and square",
        fields: &[&[
            field("rate", SCHEDULE, Default("0.001"), "the learning rate, or a schedule"),
            DECAY,
            field("beta1", Kind::BelowOne, Default("0.9"), "what stays of the average gradient"),
            field("beta2", Kind::BelowOne, Default("0.999"), "what stays of the average square"),
            field("epsilon", Kind::NotNegative, Default("1e-8"), "keeps divisions finite"),
        ]],
    },
];

pub(super) static WEIGHTS: &[&Object] = &[
    &Object {
        name: "constant",
        about: "all the same",
        fields: &[&[field("value", Kind::Number, Default("0"), "the value")]],
    },
    &Object {
        name: "uniform",
        about: "evenly between two bounds",
        fields: &[&[
            field("low", Kind::Number, Required, "the lower bound"),
            field("high", Kind::Number, Required, "the upper bound"),
        ]],
    },
    &Object {
        name: "normal",
        about: "a Gaussian",
        fields: &[&[
            field("mean", Kind::Number, Default("0"), "its mean"),
            field("deviation", Kind::NotNegative, Default("1"), "its standard deviation"),
        ]],
    },
    &Object { name: "auto_uniform", about: "evenly between ∓1/√inputs", fields: &[] },
    &Object {
        name: "node_normalized",
        about: "evenly between ∓scale·√(6 / (inputs + outputs))",
        fields: &[&[field("scale", Kind::Number, Default("1"), "times the bound")]],
    },
    &Object {
        name: "orthogonal",
        about: "orthogonal rows or columns",
        fields: &[&[field("scale", Kind::Number, Default("1"), "their length")]],
    },
    &Object {
        name: "sparse_eigen",
        about: "a few normal weights in each row, scaled to a spectral radius",
        fields: &[&[
            field("connections", Kind::Whole(1), Default("15"), "weights of a row that are not zero"),
            field("radius", Kind::Number, Default("1.2"), "the largest absolute eigenvalue"),
        ]],
    },
];
