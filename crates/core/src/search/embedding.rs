//! Embeddings of tools: checked unit vectors, the nearest tools to a question, and the text of a tool that a model reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ToolText;

/// Most numbers of a vector.
pub const MAX_DIMENSION: usize = 8192;

/// Bytes of a tool's text that are embedded. Models read a few hundred words well; the rest is left out, as in the
/// index.
const MAX_TEXT: usize = 2048;
/// Bytes of its description, so that parameters have room too.
const MAX_DESCRIPTION: usize = 1400;
/// Bytes of the description of a parameter.
const MAX_PARAMETER: usize = 80;

/// Reason why numbers are no embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEmbedding {
    /// No numbers.
    #[error("a vector without numbers")]
    Empty,
    /// More than [`MAX_DIMENSION`].
    #[error("a vector with more than {MAX_DIMENSION} numbers")]
    TooLong,
    /// Infinite, or not a number.
    #[error("a vector with a number that is not finite")]
    NotFinite,
    /// A vector without direction.
    #[error("a vector of zeros")]
    Zero,
}

/// A vector of length 1 that stands for the meaning of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding(Box<[f32]>);

impl Embedding {
    /// The direction of these numbers.
    ///
    /// # Errors
    /// They have no direction, or are too many.
    pub fn new(numbers: &[f32]) -> Result<Self, BadEmbedding> {
        match numbers.len() {
            0 => return Err(BadEmbedding::Empty),
            1..=MAX_DIMENSION => {}
            _ => return Err(BadEmbedding::TooLong),
        }
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(BadEmbedding::NotFinite);
        }
        let length = numbers.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
        if length <= 0.0 {
            return Err(BadEmbedding::Zero);
        }
        Ok(Self(numbers.iter().map(|number| (f64::from(*number) / length) as f32).collect()))
    }

    /// Number of numbers.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.0.len()
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.0.len() * size_of::<f32>()
    }

    /// Cosine of the angle between two vectors; -1 if their dimensions differ.
    fn similarity(&self, other: &Self) -> f32 {
        if self.dimension() != other.dimension() {
            return -1.0;
        }
        self.0.iter().zip(&other.0).map(|(left, right)| left * right).sum()
    }
}

/// Embeddings of tools, by their public names.
#[derive(Debug, Clone, Default)]
pub struct EmbeddingTable {
    tools: BTreeMap<String, Arc<Embedding>>,
}

impl EmbeddingTable {
    /// A table of these tools.
    pub fn new(tools: impl IntoIterator<Item = (String, Arc<Embedding>)>) -> Self {
        Self { tools: tools.into_iter().collect() }
    }

    /// Number of tools.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// True without tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tools nearest to a question, nearest first. `visible` decides which tools may be found. A tool that has
    /// nothing to do with the question (no positive similarity) is left out.
    #[must_use]
    pub fn nearest(&self, question: &Embedding, limit: usize, visible: impl Fn(&str) -> bool) -> Vec<String> {
        let tools = self.tools.iter().filter(|(key, _)| visible(key));
        let mut ranked: Vec<(f32, &str)> =
            tools.map(|(key, tool)| (tool.similarity(question), key.as_str())).collect();
        ranked.retain(|(similarity, _)| *similarity > 0.0);
        ranked.sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then_with(|| left.1.cmp(right.1)));
        ranked.into_iter().take(limit).map(|(_, key)| key.to_owned()).collect()
    }
}

/// Text of a tool for an embedding model: server, name, title, description and parameters, of bounded length.
#[must_use]
pub fn embedding_text(tool: &ToolText<'_>) -> String {
    let mut text = format!("{}: {}", clipped(tool.server, 100), clipped(tool.name, 200));
    if let Some(title) = tool.title {
        text.push('\n');
        text.push_str(clipped(title, 200));
    }
    if let Some(description) = tool.description {
        text.push('\n');
        text.push_str(clipped(description.trim(), MAX_DESCRIPTION));
    }
    for parameter in tool.parameters {
        if text.len() >= MAX_TEXT {
            break;
        }
        text.push_str("\n- ");
        text.push_str(clipped(parameter.name, MAX_PARAMETER));
        if let Some(description) = parameter.description {
            text.push_str(": ");
            text.push_str(clipped(description.trim(), MAX_PARAMETER));
        }
    }
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

fn clipped(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::super::ParameterText;
    use super::*;

    fn vector(numbers: &[f32]) -> Embedding {
        Embedding::new(numbers).unwrap()
    }

    #[test]
    fn numbers_without_a_direction_are_refused() {
        assert_eq!(Embedding::new(&[]), Err(BadEmbedding::Empty));
        assert_eq!(Embedding::new(&[0.0, -0.0]), Err(BadEmbedding::Zero));
        assert_eq!(Embedding::new(&[1.0, f32::NAN]), Err(BadEmbedding::NotFinite));
        assert_eq!(Embedding::new(&[f32::NEG_INFINITY]), Err(BadEmbedding::NotFinite));
        assert_eq!(Embedding::new(&vec![1.0; MAX_DIMENSION + 1]), Err(BadEmbedding::TooLong));
        assert_eq!(Embedding::new(&vec![1.0; MAX_DIMENSION]).unwrap().dimension(), MAX_DIMENSION);
    }

    #[test]
    fn very_large_and_very_small_numbers_keep_their_direction() {
        assert_eq!(vector(&[f32::MAX, 0.0]), vector(&[1.0, 0.0]));
        assert_eq!(vector(&[0.0, f32::MIN_POSITIVE]), vector(&[0.0, 7.0]));
    }

    #[test]
    fn the_nearest_visible_tools_are_found_nearest_first() {
        let table = EmbeddingTable::new(
            [("east", [1.0, 0.0]), ("north", [0.0, 1.0]), ("north_east", [1.0, 1.0]), ("west", [-1.0, 0.0])]
                .map(|(key, numbers)| (key.to_owned(), Arc::new(vector(&numbers)))),
        );
        let question = vector(&[2.0, 0.1]);
        assert_eq!(table.nearest(&question, 9, |_| true), ["east", "north_east", "north"]);
        assert_eq!(table.nearest(&question, 1, |key| key != "east"), ["north_east"], "hidden");
        assert_eq!(table.nearest(&vector(&[1.0, 0.0, 0.0]), 9, |_| true), [""; 0], "another dimension");
    }

    #[test]
    fn the_text_of_a_tool_is_bounded() {
        let long = "ä".repeat(100_000);
        let parameters = vec![ParameterText { name: &long, description: Some(&long) }; 1000];
        let tool = ToolText {
            server: &long,
            name: &long,
            title: Some(&long),
            description: Some(&long),
            parameters: &parameters,
        };
        assert!((1900..=MAX_TEXT).contains(&embedding_text(&tool).len()));
        let parameters = [ParameterText { name: "to", description: Some("recipient") }];
        let small = ToolText {
            server: "mail",
            name: "send",
            title: None,
            description: Some(" Sends a message. "),
            parameters: &parameters,
        };
        assert_eq!(embedding_text(&small), "mail: send\nSends a message.\n- to: recipient");
    }
}
