//! Plain BM25 as a baseline: all text of a tool in one bag of lower-case words, without stems, fields or synonyms.

use std::collections::HashMap;

use crate::catalog::PublicTool;

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Number of answers to a question.
pub(crate) const LIMIT: usize = 10;

/// The best tools for each question, best first.
pub(crate) fn answers(tools: &[PublicTool], questions: &[String]) -> Vec<Vec<String>> {
    let bags: Vec<HashMap<String, f64>> = tools.iter().map(bag).collect();
    let lengths: Vec<f64> = bags.iter().map(|bag| bag.values().sum()).collect();
    let average = lengths.iter().sum::<f64>() / lengths.len().max(1) as f64;
    let mut containing: HashMap<&str, f64> = HashMap::new();
    for word in bags.iter().flat_map(HashMap::keys) {
        *containing.entry(word).or_default() += 1.0;
    }
    let score = |place: usize, asked: &[String]| -> f64 {
        let of_word = |word: &String| {
            let count = bags[place].get(word)?;
            let with = containing.get(word.as_str())?;
            let rarity = (1.0 + (tools.len() as f64 - with + 0.5) / (with + 0.5)).ln();
            let norm = K1 * (1.0 - B + B * lengths[place] / average);
            Some(rarity * count * (K1 + 1.0) / (count + norm))
        };
        asked.iter().filter_map(of_word).sum()
    };
    let answer = |question: &String| {
        let asked: Vec<String> = words(question).collect();
        let mut ranked: Vec<(f64, usize)> = (0..tools.len())
            .map(|place| (score(place, &asked), place))
            .filter(|(score, _)| *score > 0.0)
            .collect();
        ranked.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        ranked.into_iter().take(LIMIT).map(|(_, place)| tools[place].key()).collect()
    };
    questions.iter().map(answer).collect()
}

fn bag(tool: &PublicTool) -> HashMap<String, f64> {
    let mut bag = HashMap::new();
    let texts = [Some(&tool.server), Some(&tool.name), tool.title.as_ref(), tool.description.as_ref()];
    let parameters =
        tool.parameters.iter().flat_map(|parameter| [Some(&parameter.name), parameter.description.as_ref()]);
    for word in texts.into_iter().chain(parameters).flatten().flat_map(|text| words(text)) {
        *bag.entry(word).or_default() += 1.0;
    }
    bag
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rare_word_outweighs_a_common_one() {
        let tool = |name: &str, description: &str| PublicTool {
            server: "s".to_owned(),
            name: name.to_owned(),
            title: None,
            description: Some(description.to_owned()),
            parameters: Vec::new(),
        };
        let tools = [
            tool("a", "send a letter"),
            tool("b", "send a parcel"),
            tool("c", "send it"),
            tool("d", "sell it"),
        ];
        let answers = answers(&tools, &["Send_parcel".to_owned(), "nothing".to_owned()]);
        assert_eq!(answers[0][0], "s/b");
        assert_eq!(answers[0].len(), 3);
        assert!(answers[1].is_empty());
    }
}
