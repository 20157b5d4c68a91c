//! Class names to the fixed tokens around a context.

use super::{Prompt, PromptContent};
use crate::model::{ClassName, ClassTokens, Context, Position, TextTower};
use crate::text::Tokenizer;
use crate::{Error, Result};

impl Prompt {
    /// The tokens of every class around this prompt's context; an error for a prompt without context.
    pub fn class_tokens(&self, tokenizer: &Tokenizer, classes: &[String]) -> Result<ClassTokens> {
        self.check_classes(classes)?;
        let (context, position, tail) = match &self.content {
            PromptContent::Learned { context, position, .. } => (context, *position, ""),
            PromptContent::CoCoOp { context, .. } => (context, Position::End, ""),
            PromptContent::Maple { context, tail, .. } => (context, Position::End, tail.as_str()),
            _ => return Err(self.fault(format!("a {} prompt has no context tokens", self.kind()))),
        };
        Ok(class_tokens(tokenizer, classes, context.tokens, position, tail))
    }
}

/// The tokens of `"... tail name."`, as CoOp cuts them: the name's length is that of the name alone, the rest is what
/// follows in the tokens of the name with its full stop. Underscores in names are spaces.
pub fn class_tokens(
    tokenizer: &Tokenizer,
    classes: &[String],
    n_ctx: usize,
    position: Position,
    tail: &str,
) -> ClassTokens {
    let tail = tokenizer.encode(tail);
    let classes = classes.iter().map(|name| {
        let ClassName { name, rest } = cut(tokenizer, name, ".", position != Position::Front || !tail.is_empty());
        ClassName { name: [tail.as_slice(), &name].concat(), rest }
    });
    ClassTokens { n_ctx, position, sot: tokenizer.start(), classes: classes.collect() }
}

/// The tokens of a name, which `follows` other words, and of what comes after it. The rest is cut off the whole, so that pieces that
/// join across the border join here, too.
fn cut(tokenizer: &Tokenizer, name: &str, after: &str, follows: bool) -> ClassName {
    let name = name.replace('_', " ");
    let encode = |text: &str| if follows { tokenizer.encode_following(text) } else { tokenizer.encode(text) };
    let all = encode(&format!("{name}{after}"));
    let length = encode(&name).len().min(all.len());
    let mut rest = all[length..].to_vec();
    rest.push(tokenizer.eot());
    ClassName { name: all[..length].to_vec(), rest }
}

/// A template as a context: the embeddings of the words before the class name, and what follows as fixed tokens. `None`
/// for a template that begins with the name.
pub fn template_context(
    template: &str,
    tower: &dyn TextTower,
    tokenizer: &Tokenizer,
    classes: &[String],
) -> Result<Option<(ClassTokens, Context)>> {
    let (before, after) = template
        .split_once("{}")
        .ok_or_else(|| Error::config("template", format!("expected `{{}}` for the class name, found {template:?}")))?;
    let words = tokenizer.encode(before.trim_end());
    if words.is_empty() {
        return Ok(None);
    }
    let context = Context::shared(words.len(), tower.width(), tower.embed(&words)?.into_vec());
    let names = classes.iter().map(|class| cut(tokenizer, class, after, true)).collect();
    let tokens = ClassTokens { n_ctx: words.len(), position: Position::End, sot: tokenizer.start(), classes: names };
    check_length(&tokens, classes, tower.context_length())?;
    Ok(Some((tokens, context)))
}

/// Refuses class names that do not fit the text tower's positions.
pub fn check_length(tokens: &ClassTokens, classes: &[String], limit: usize) -> Result<()> {
    for (class, name) in tokens.classes.iter().zip(classes) {
        let length = usize::from(tokens.sot.is_some()) + tokens.n_ctx + class.name.len() + class.rest.len();
        if length > limit {
            let reason = format!(
                "{length} tokens with a context of {}, but the text tower has {limit} positions; shorten the name",
                tokens.n_ctx
            );
            return Err(Error::Text { text: name.chars().take(60).collect(), reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_as_coop_cuts_them() {
        let cut =
            |names: &[String], n_ctx, tail: &str| class_tokens(&Tokenizer::clip(), names, n_ctx, Position::End, tail);
        let tokens = cut(&["cat".to_owned(), "pug_dog".to_owned()], 4, "");
        assert_eq!(tokens.sot, Some(49406));
        assert_eq!(tokens.classes[0], ClassName { name: vec![2368], rest: vec![269, 49407] });
        assert_eq!(tokens.classes[1].name.len(), 2);
        assert_eq!(tokens.classes[1].rest, [269, 49407]);
        // Fixed words precede the name.
        assert_eq!(cut(&["cat".to_owned()], 2, "of a").classes[0].name, [539, 320, 2368]);
        let long = ["very ".repeat(80)];
        let message = check_length(&cut(&long, 4, ""), &long, 77).unwrap_err().to_string();
        assert!(message.contains("77 positions"), "{message}");
    }

    /// Words, name and rest are the tokens of the whole text, for tokenizers that cut words and for those that cut texts.
    #[test]
    fn a_name_behind_words_is_cut_as_in_the_whole_text() {
        let own = |name: &str| Tokenizer::from_dir(&crate::files::fixture("golden/models").join(name)).unwrap();
        for tokenizer in [Tokenizer::clip(), own("tiny-siglip"), own("tiny-siglip2-hf")] {
            for name in ["cat", "golden retriever"] {
                let ClassName { name: tokens, rest } = cut(&tokenizer, name, ", a pet.", true);
                let parts = [tokenizer.encode("a photo of a"), tokens, rest].concat();
                let whole = [tokenizer.encode(&format!("a photo of a {name}, a pet.")), vec![tokenizer.eot()]].concat();
                assert_eq!(parts, whole, "{tokenizer:?} {name}");
            }
        }
    }
}
