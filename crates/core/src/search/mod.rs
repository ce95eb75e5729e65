//! Search over the tools of all servers: finds the tools that fit a question.
//!
//! The index is lexical. It compares the words of a question with the words of a tool's name, server, title, description
//! and parameters, by their stems. `synonyms.txt` adds words of the same meaning, and a misspelt word finds its nearest
//! neighbours. [`ToolIndex`] has the words of the tools, and `ranking` searches them; `tokens` splits text into words,
//! `query` turns a question into terms, and `synonyms` reads the table.
//!
//! A ranking by embeddings can be added: `embedding` finds the nearest tools, `fusion` merges both rankings, and
//! `endpoint_health` decides when a failed endpoint is asked again. The host computes the embeddings.

mod embedding;
mod endpoint_health;
mod fusion;
mod index;
mod query;
mod ranking;
mod synonyms;
mod tokens;

pub use embedding::{BadEmbedding, Embedding, EmbeddingTable, MAX_DIMENSION, embedding_text};
pub use endpoint_health::EndpointHealth;
pub use fusion::fuse;
pub use index::{Hit, ToolIndex};
pub use ranking::VisibleTools;

/// Text of one tool, as the index reads it.
#[derive(Debug, Clone, Copy)]
pub struct ToolText<'a> {
    /// Name of the server in the config.
    pub server: &'a str,
    /// The server's own name of the tool.
    pub name: &'a str,
    /// Title for people.
    pub title: Option<&'a str>,
    /// Description for models.
    pub description: Option<&'a str>,
    /// Parameters of the input schema.
    pub parameters: &'a [ParameterText<'a>],
}

/// Text of one parameter of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ParameterText<'a> {
    /// Name of the parameter.
    pub name: &'a str,
    /// Description of the parameter.
    pub description: Option<&'a str>,
}
