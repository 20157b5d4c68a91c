//! `flatclip prompt`: what a prompt file is, prompts of other programs, and text features for other programs.

use crate::prelude::*;
use flatclip::model::Position;
use flatclip::prompt::{ImportOptions, Prompt, PromptContent, import, write_text_features};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// What a prompt is and how it was made
    Show {
        /// A prompt file or the directory of a tuning run
        prompt: PathBuf,
    },
    /// Take over a checkpoint of CoOp, CoCoOp or MaPLe (model.pth.tar-N), or Tip-Adapter's keys
    Import(Import),
    /// Write the text features of a class list, [classes, width], for other programs
    Export(Export),
}

#[derive(clap::Args)]
pub(crate) struct Import {
    /// The checkpoint
    file: PathBuf,
    /// The prompt file to write
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Position of the class name in a CoOp prompt: end, middle or front
    #[arg(long, default_value = "end", value_parser = ["end", "middle", "front"])]
    position: String,
    /// The words that the context started from, for the record
    #[arg(long, default_value = "", value_name = "TEXT")]
    words: String,
    #[command(flatten)]
    classes: ClassArgs,
    /// Tip-Adapter: images per class
    #[arg(long, default_value_t = 0, value_name = "N")]
    shots: usize,
    /// Tip-Adapter: weight of the cache
    #[arg(long, default_value_t = 1.0)]
    alpha: f32,
    /// Tip-Adapter: sharpness of the cache
    #[arg(long, default_value_t = 5.5)]
    beta: f32,
}

#[derive(clap::Args)]
pub(crate) struct Export {
    /// A prompt file or the directory of a tuning run
    prompt: PathBuf,
    /// The file to write: .npy, or safetensors
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    classes: ClassArgs,
}

pub(crate) fn run(command: Command, out: &Output) -> Result<()> {
    match command {
        Command::Show { prompt } => show(&Prompt::open(&prompt)?, out),
        Command::Import(args) => {
            take_over(&args, out)?.save(&args.out)?;
            show(&Prompt::load(&args.out)?, out)
        }
        Command::Export(args) => export(&args, out),
    }
}

fn take_over(args: &Import, out: &Output) -> Result<Prompt> {
    let position = match args.position.as_str() {
        "middle" => Position::Middle,
        "front" => Position::Front,
        _ => Position::End,
    };
    let options = ImportOptions {
        position,
        words: args.words.clone(),
        classes: args.classes.read(out)?.unwrap_or_default(),
        shots: args.shots,
        alpha: args.alpha,
        beta: args.beta,
        templates: Vec::new(),
    };
    Ok(import(&args.file, &options)?)
}

fn show(prompt: &Prompt, out: &Output) -> Result<()> {
    let p = &prompt.provenance;
    let shape = match &prompt.content {
        PromptContent::Templates(templates) => templates.join(" | "),
        PromptContent::Features(m) => format!("[{}, {}]", m.rows(), m.cols()),
        PromptContent::TipAdapter { keys, alpha, beta, .. } => {
            format!("[{}, {}] keys, alpha {alpha}, beta {beta}", keys.rows(), keys.cols())
        }
        PromptContent::Linear { layer, alpha, .. } => {
            format!("[{}, {}] weights, alpha {alpha}", layer.weight.rows(), layer.weight.cols())
        }
        PromptContent::Maple { context, deep, .. } => format!("{:?}, depth {}", context.shape(), deep.len() + 1),
        _ => prompt.context().map(|c| format!("{:?}, norm {:.4}", c.shape(), c.norm())).unwrap_or_default(),
    };
    let words = match &prompt.content {
        PromptContent::Learned { words, .. }
        | PromptContent::CoCoOp { words, .. }
        | PromptContent::Maple { words, .. } => words,
        _ => "",
    };
    let any_classes = prompt.check_classes(&["any".to_owned()]).is_ok();
    if out.is_json {
        // The embedding of a token is for programs that load the prompt.
        let p = flatclip::prompt::Provenance { start_token: Vec::new(), ..p.clone() };
        return out.json(&json!({
            "kind": prompt.kind(), "shape": shape, "words": words, "any_classes": any_classes, "provenance": p,
        }));
    }
    let classes = match p.classes.len() {
        0 => String::new(),
        count => format!("{count} ({})", p.class_hash),
    };
    let rows = [
        ("kind", prompt.kind().name()),
        ("context", &shape),
        ("words", words),
        ("class lists", if any_classes { "any" } else { "its own only" }),
        ("method", &p.method),
        ("source", &p.source),
        ("model", &p.model_hash),
        ("classes", &classes),
        ("version", &p.version),
    ];
    out.rows(&["prompt", ""], rows.into_iter().filter(|(_, value)| !value.is_empty()).map(<[&str; 2]>::from))
}

fn export(args: &Export, out: &Output) -> Result<()> {
    let prompt = Prompt::open(&args.prompt)?;
    let classes = args.classes.read(out)?.unwrap_or_else(|| prompt.provenance.classes.clone());
    ensure!(!classes.is_empty(), "--classes: this prompt does not say its classes; give them");
    let model = args.model.load(out)?;
    model.check_prompt(&prompt)?;
    let features = prompt.text_features(model.clip(), model.tokenizer(), &classes)?;
    let missing = match &prompt.content {
        PromptContent::CoCoOp { .. } => Some("the shift that each image gives the context"),
        PromptContent::Maple { .. } => Some("the prompts in the image tower"),
        PromptContent::TipAdapter { .. } => Some("the cache"),
        PromptContent::Linear { .. } => Some("the classifier of image features"),
        _ => None,
    };
    if let Some(missing) = missing {
        let kind = prompt.kind();
        out.warn(format_args!("a matrix of text features cannot hold all of a {kind} prompt: {missing} is dropped"));
    }
    write_text_features(&args.out, &features, &classes)?;
    let (rows, width) = (features.rows(), features.cols());
    let document = json!({ "file": args.out, "classes": rows, "width": width });
    out.say(&document, format_args!("{}: [{rows}, {width}]", args.out.display()))
}
