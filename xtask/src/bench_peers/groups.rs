//! What is compared: groups of sides that take turns, and the rows of the table that are made of them.

/// One side of a comparison.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    /// `flatclip bench` with these arguments; the case after `skip` others.
    Ours { arguments: &'static [&'static str], skip: usize },
    /// A piece of work of `peers.py`.
    Peer(&'static str),
    /// The same in a process with the allocator as installed: torch gains from a tuned one, and normally has it here.
    Untuned(&'static str),
}

/// What a row compares, and what is hoped for.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    /// Only reported.
    None,
    AtLeast(f64),
    AtMost(f64),
}

/// One row of the table.
pub(super) struct Row {
    pub(super) title: &'static str,
    /// Index of the side whose time is divided by that of `under`.
    pub(super) over: usize,
    pub(super) under: usize,
    pub(super) goal: Goal,
    /// Compare arithmetic per second instead of time.
    pub(super) rates: bool,
}

/// Peak memory of one of our sides.
pub(super) struct Memory {
    pub(super) title: &'static str,
    pub(super) side: usize,
    /// GB.
    pub(super) limit: f64,
}

/// Sides that take turns.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) sides: &'static [Side],
    pub(super) rows: &'static [Row],
    pub(super) memory: &'static [Memory],
    /// Title and goal of one more row: the median of the ratios.
    pub(super) median: Option<(&'static str, Goal)>,
    /// Only where tiles work: elsewhere bf16 is f32 arithmetic on rounded numbers.
    pub(super) tiles: bool,
    pub(super) one_thread: bool,
}

const fn ours(arguments: &'static [&'static str]) -> Side {
    Side::Ours { arguments, skip: 0 }
}

/// `over` against side 0, which is ours.
const fn row(title: &'static str, over: usize, goal: Goal) -> Row {
    Row { title, over, under: 0, goal, rates: false }
}

const PLAIN: Group =
    Group { name: "", sides: &[], rows: &[], memory: &[], median: None, tiles: false, one_thread: false };

const fn product(precision: &'static str, skip: usize) -> Side {
    match precision.as_bytes() {
        b"f32" => Side::Ours { arguments: &["gemm", "--precision", "f32"], skip },
        b"i16" => Side::Ours { arguments: &["gemm", "--precision", "i16"], skip: 4 + skip },
        // The f32 shapes come first.
        _ => Side::Ours { arguments: &["gemm", "--precision", "bf16"], skip: 4 + skip },
    }
}

/// An image whose any-time views end after `skip` more rounds than one: 1, 4, 8, 16, 32, 64 views.
const fn stss_rounds(skip: usize) -> Side {
    Side::Ours { arguments: &["stss-rounds", "--views", "64", "--precision", "i16", "--classes", "1000"], skip }
}

const PRODUCT_ROWS: [Row; 4] = [
    Row { under: 0, ..row("product 3152 x 768 x 3072 against torch", 1, Goal::None) },
    Row { under: 2, ..row("product 3152 x 3072 x 768 against torch", 3, Goal::None) },
    Row { under: 4, ..row("product 3152 x 768 x 768 against torch", 5, Goal::None) },
    Row { under: 6, ..row("product 3152 x 768 x 2304 against torch", 7, Goal::None) },
];

/// Ours in i16 against ours in f32.
const FIXED_ROWS: [Row; 4] = [
    Row { under: 0, ..row("product 3152 x 768 x 3072, i16 against our own f32", 1, Goal::None) },
    Row { under: 2, ..row("product 3152 x 3072 x 768, i16 against our own f32", 3, Goal::None) },
    Row { under: 4, ..row("product 3152 x 768 x 768, i16 against our own f32", 5, Goal::None) },
    Row { under: 6, ..row("product 3152 x 768 x 2304, i16 against our own f32", 7, Goal::None) },
];

const STEP_1000: Side = Side::Ours { arguments: &["context-step", "--classes", "1000"], skip: 1 };

pub(super) static GROUPS: &[Group] = &[
    Group {
        name: "f32 products (MKL through torch)",
        sides: &[
            product("f32", 0),
            Side::Peer("gemm-f32-768x3072"),
            product("f32", 1),
            Side::Peer("gemm-f32-3072x768"),
            product("f32", 2),
            Side::Peer("gemm-f32-768x768"),
            product("f32", 3),
            Side::Peer("gemm-f32-768x2304"),
        ],
        rows: &PRODUCT_ROWS,
        median: Some(("f32 products, median over the four shapes", Goal::None)),
        ..PLAIN
    },
    Group {
        name: "i16 products",
        sides: &[
            product("i16", 0),
            product("f32", 0),
            product("i16", 1),
            product("f32", 1),
            product("i16", 2),
            product("f32", 2),
            product("i16", 3),
            product("f32", 3),
        ],
        rows: &FIXED_ROWS,
        median: Some(("i16 products against our own f32, median over the four shapes", Goal::AtLeast(1.6))),
        ..PLAIN
    },
    Group {
        name: "views of a JPEG of 500 x 375, one thread",
        sides: &[ours(&["views", "--image", "photo.jpg", "--views", "64"]), Side::Peer("pil-views")],
        rows: &[row("64 views of a JPEG of 500 x 375, one thread, against PIL and torchvision", 1, Goal::AtLeast(5.0))],
        one_thread: true,
        ..PLAIN
    },
    Group {
        name: "ViT-B/16 without tiles",
        sides: &[
            ours(&["encode-views", "--precision", "i16"]),
            ours(&["encode-views", "--precision", "f32"]),
            Side::Peer("openvino-views-f32"),
            Side::Peer("onnx-views-f32"),
            Side::Peer("torch-views-f32"),
            Side::Peer("openvino-views-int8"),
            Side::Peer("onnx-views-int8"),
            ours(&["stss-image", "--precision", "i16", "--classes", "1000"]),
            product("i16", 0),
            product("f32", 0),
        ],
        rows: &[
            row("encode-views ViT-B/16, i16, against OpenVINO f32", 2, Goal::AtLeast(1.45)),
            row("encode-views ViT-B/16, i16, against ONNX Runtime f32", 3, Goal::AtLeast(1.45)),
            row("encode-views ViT-B/16, i16, against torch f32", 4, Goal::None),
            row("encode-views ViT-B/16, i16, against OpenVINO int8 (NNCF)", 5, Goal::None),
            row("encode-views ViT-B/16, i16, against ONNX Runtime int8 (dynamic)", 6, Goal::None),
            row("encode-views ViT-B/16, i16, against our own f32", 1, Goal::None),
            row("what STSS adds in i16: stss-image (K=1000, R=16) over encode-views", 7, Goal::AtMost(1.02)),
            Row { rates: true, under: 8, ..row("whole ViT-B/16 in i16, share of our own product rate", 0, Goal::None) },
            Row { under: 1, ..row("encode-views ViT-B/16, f32, against OpenVINO f32", 2, Goal::AtLeast(1.0)) },
            Row { under: 1, ..row("encode-views ViT-B/16, f32, against torch f32", 4, Goal::AtLeast(1.5)) },
            Row { rates: true, under: 9, ..row("whole ViT-B/16 in f32, share of our own product rate", 1, Goal::None) },
        ],
        memory: &[Memory { title: "stss-image, K=1000, R=16, i16: peak memory", side: 7, limit: 0.45 }],
        ..PLAIN
    },
    Group {
        name: "FGA image",
        sides: &[
            ours(&["stss-image", "--precision", "i16", "--classes", "1000"]),
            ours(&["stss-image", "--precision", "f32", "--classes", "1000"]),
            Side::Peer("fga-1000"),
            stss_rounds(0),
            stss_rounds(2),
            stss_rounds(5),
        ],
        rows: &[
            row("FGA image (K=1000, R=16, ready bank), i16, against the same in torch f32", 2, Goal::None),
            Row { under: 1, ..row("FGA image, f32, against the same in torch f32", 2, Goal::None) },
            Row {
                under: 3,
                ..row("FGA image, i16, any-time views, ended by view 1, against torch f32, all views", 2, Goal::None)
            },
            Row {
                under: 4,
                ..row("FGA image, i16, any-time views, ended by view 8, against torch f32, all views", 2, Goal::None)
            },
            Row {
                under: 5,
                ..row("FGA image, i16, any-time views, not ended before view 64, against torch f32", 2, Goal::None)
            },
        ],
        ..PLAIN
    },
    Group {
        name: "RN50 without tiles",
        sides: &[
            ours(&["encode-views", "--model", "random:RN50", "--precision", "i16"]),
            Side::Peer("torch-rn50-f32"),
            ours(&["encode-views", "--model", "random:RN50", "--precision", "f32"]),
        ],
        rows: &[
            row("encode-views RN50, i16, against torch f32 channels-last", 1, Goal::AtLeast(1.4)),
            Row { under: 2, ..row("encode-views RN50, f32, against torch f32 channels-last", 1, Goal::None) },
        ],
        ..PLAIN
    },
    Group {
        name: "context step, K=100",
        sides: &[
            ours(&["context-step", "--classes", "100"]),
            Side::Peer("open_clip-step-100"),
            Side::Peer("shared-step-100"),
        ],
        rows: &[
            row("context-step K=100 against open_clip f32 at 77 positions", 1, Goal::AtLeast(40.0)),
            row("context-step K=100 against torch f32 with a shared prefix", 2, Goal::None),
        ],
        ..PLAIN
    },
    Group {
        name: "context step, K=1000",
        sides: &[
            STEP_1000,
            Side::Peer("shared-step-1000"),
            ours(&["context-step", "--classes", "100"]),
            Side::Ours { arguments: &["context-step", "--classes", "1000", "--text-precision", "i16"], skip: 1 },
        ],
        rows: &[
            row("context-step K=1000, f32, against torch f32 with a shared prefix", 1, Goal::None),
            Row {
                under: 3,
                ..row("context-step K=1000, i16, against torch f32 with a shared prefix", 1, Goal::AtLeast(1.5))
            },
            Row { under: 3, ..row("context-step K=1000, i16, against our own f32", 0, Goal::None) },
            Row { over: 0, under: 2, ..row("context-step: time of K=1000 over K=100", 0, Goal::AtMost(12.0)) },
        ],
        memory: &[Memory { title: "context-step K=1000, batch 32: peak memory", side: 0, limit: 1.5 }],
        ..PLAIN
    },
    Group {
        name: "SAPT step, K=1000",
        sides: &[
            Side::Ours { arguments: &["sapt-step", "--classes", "1000", "--text-precision", "i16"], skip: 1 },
            Side::Ours { arguments: &["sapt-step", "--classes", "1000"], skip: 1 },
        ],
        rows: &[row("sapt-step K=1000, i16, against our own f32", 1, Goal::AtLeast(1.33))],
        ..PLAIN
    },
    Group {
        name: "TPT, K=100",
        sides: &[
            ours(&["tpt-step", "--precision", "f32", "--classes", "100"]),
            Side::Peer("tpt-step-100"),
            ours(&["tpt-image", "--precision", "f32", "--classes", "100"]),
            Side::Peer("tpt-100"),
        ],
        rows: &[
            row("tpt-step K=100, features at hand, against TPT in torch f32 at 77 positions", 1, Goal::AtLeast(20.0)),
            Row {
                under: 2,
                ..row("tpt-image K=100, f32, views encoded, against TPT in torch f32 at 77 positions", 3, Goal::None)
            },
        ],
        ..PLAIN
    },
    Group {
        name: "bf16 products (oneDNN through torch)",
        sides: &[
            product("bf16", 0),
            Side::Peer("gemm-bf16-768x3072"),
            product("bf16", 1),
            Side::Peer("gemm-bf16-3072x768"),
            product("bf16", 2),
            Side::Peer("gemm-bf16-768x768"),
            product("bf16", 3),
            Side::Peer("gemm-bf16-768x2304"),
        ],
        rows: &PRODUCT_ROWS,
        median: Some(("bf16 products, median over the four shapes, against oneDNN AMX", Goal::AtLeast(1.0))),
        tiles: true,
        ..PLAIN
    },
    Group {
        name: "ViT-B/16 in bf16",
        sides: &[
            ours(&["encode-views", "--precision", "bf16"]),
            Side::Peer("openvino-views-bf16"),
            Side::Peer("torch-views-bf16"),
            Side::Untuned("torch-views-bf16"),
            product("bf16", 0),
        ],
        rows: &[
            row("encode-views ViT-B/16, bf16, against OpenVINO bf16", 1, Goal::AtLeast(1.5)),
            row("encode-views ViT-B/16, bf16, against torch bf16, allocator tuned", 2, Goal::AtLeast(1.8)),
            row("encode-views ViT-B/16, bf16, against torch bf16, as installed", 3, Goal::AtLeast(3.0)),
            Row {
                rates: true,
                under: 4,
                ..row("whole ViT-B/16 in bf16, share of our own product rate", 0, Goal::AtLeast(0.75))
            },
        ],
        tiles: true,
        ..PLAIN
    },
    Group {
        name: "RN50 in bf16",
        sides: &[
            ours(&["encode-views", "--model", "random:RN50", "--precision", "bf16"]),
            Side::Peer("torch-rn50-bf16"),
        ],
        rows: &[row("encode-views RN50, bf16, against torch bf16 channels-last", 1, Goal::AtLeast(1.2))],
        tiles: true,
        ..PLAIN
    },
    Group {
        name: "context step, K=1000, peer in bf16",
        sides: &[STEP_1000, Side::Peer("shared-step-1000-bf16")],
        rows: &[row("context-step K=1000 (f32) against torch bf16 with a shared prefix", 1, Goal::AtLeast(2.0))],
        tiles: true,
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_points_at_sides_of_its_group_and_every_peer_is_known() {
        let script = include_str!("../../../tools/peers.py");
        for group in GROUPS {
            for row in group.rows {
                assert!(row.over < group.sides.len() && row.under < group.sides.len(), "{}", row.title);
                assert!(matches!(group.sides[row.under], Side::Ours { .. }), "{}", row.title);
            }
            for memory in group.memory {
                assert!(matches!(group.sides[memory.side], Side::Ours { .. }), "{}", memory.title);
            }
            for side in group.sides {
                if let Side::Peer(name) | Side::Untuned(name) = side {
                    assert!(is_work_of(script, name), "peers.py has no {name}");
                }
            }
        }
    }

    /// Written out as a key of the script's table, or a product of a kind and a shape that it makes keys of.
    fn is_work_of(script: &str, name: &str) -> bool {
        let product = || {
            let (kind, shape) = name.strip_prefix("gemm-")?.split_once('-')?;
            let (k, n) = shape.split_once('x')?;
            Some(script.contains(&format!("\"{kind}\": torch.")) && script.contains(&format!("({k}, {n})")))
        };
        script.contains(&format!("\"{name}\": ")) || product().unwrap_or(false)
    }

    #[test]
    fn an_unknown_peer_is_noticed() {
        let script = include_str!("../../../tools/peers.py");
        for name in ["gemm-f16-768x3072", "gemm-f32-769x3072", "tpt-10", "gemm-f32"] {
            assert!(!is_work_of(script, name), "{name}");
        }
    }
}
