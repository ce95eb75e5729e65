//! Questions with known answers, in two halves: one to tune the search with, one to judge it.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use gripfast_measure::{MeasureError, Result};
use snowball_stemmers_rs::{Algorithm, Stemmer};

use crate::catalog::PublicTool;

const TUNING: &str = include_str!("../../search/tuning.tsv");
const JUDGING: &str = include_str!("../../search/judging.tsv");

/// Words that say nothing about a tool. A hard question may share them.
const STOP_WORDS: &str = "a about after all an and any are as at be been before being between but by can could did do \
    does each for from had has have having he her here him his how i if in into is it its just may me might more most must my need no \
    not of off on or other our out over own please same she should so some such than that the their them then there \
    these they this those to under until up us use used using very via was we were what when where which while who \
    whom why will with within without would you your";

/// Half of the questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Half {
    Tuning,
    Judging,
}

impl Half {
    pub(crate) const ALL: [Self; 2] = [Self::Tuning, Self::Judging];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tuning => "tuning",
            Self::Judging => "judging",
        }
    }
}

/// Difficulty of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Uses the words of the tool.
    Easy,
    /// Uses inflections and synonyms.
    Medium,
    /// Shares no stem with the name and at most one with the description.
    Hard,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [Self::Easy, Self::Medium, Self::Hard];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Easy => "easy",
            Self::Medium => "medium",
            Self::Hard => "hard",
        }
    }
}

/// A question and the tools that answer it.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) level: Level,
    pub(crate) text: String,
    /// `server/tool`; any of them is right.
    pub(crate) right: Vec<String>,
}

impl Question {
    fn parse(line: &str) -> Option<Self> {
        let (level, rest) = line.split_once('\t')?;
        let (text, right) = rest.split_once('\t')?;
        let level = Level::ALL.into_iter().find(|known| known.word() == level)?;
        Some(Self { level, text: text.to_owned(), right: right.split(',').map(str::to_owned).collect() })
    }

    /// False if none of its tools could be listed in this run.
    pub(crate) fn is_answerable(&self, tools: &[PublicTool]) -> bool {
        tools.iter().any(|tool| self.right.contains(&tool.key()))
    }
}

/// The questions of a half.
pub(crate) fn read(half: Half) -> Result<Vec<Question>> {
    let text = match half {
        Half::Tuning => TUNING,
        Half::Judging => JUDGING,
    };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Question::parse(line).ok_or_else(|| MeasureError::new("question", &line))).collect()
}

/// The questions of a half that these tools can answer.
pub(crate) fn answerable(half: Half, tools: &[PublicTool]) -> Result<Vec<Question>> {
    let mut questions = read(half)?;
    questions.retain(|question| question.is_answerable(tools));
    Ok(questions)
}

/// Checks that the tools of a listed server exist, and that hard questions are hard.
pub(crate) fn check(questions: &[Question], tools: &[PublicTool]) -> Result<()> {
    let known: BTreeMap<String, &PublicTool> = tools.iter().map(|tool| (tool.key(), tool)).collect();
    let servers: BTreeSet<&str> = tools.iter().map(|tool| tool.server.as_str()).collect();
    let mut problems = Vec::new();
    for question in questions {
        for right in &question.right {
            match known.get(right) {
                Some(tool) if question.level == Level::Hard => {
                    problems.extend(too_easy(&question.text, tool));
                }
                Some(_) => {}
                None if servers.contains(right.split('/').next().unwrap_or_default()) => {
                    problems.push(format!("`{}`: there is no tool {right}", question.text));
                }
                None => {}
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(MeasureError::new("questions", &problems.join("\n"))) }
}

/// The reason why a question is not hard for a tool.
fn too_easy(question: &str, tool: &PublicTool) -> Option<String> {
    let asked = stems(question);
    let in_name: Vec<_> = stems(&split_case(&tool.name)).intersection(&asked).cloned().collect();
    let description = tool.description.as_deref().unwrap_or_default();
    let in_description: Vec<_> = stems(description).intersection(&asked).cloned().collect();
    let is_hard = in_name.is_empty() && in_description.len() <= 1;
    (!is_hard).then(|| {
        format!("`{question}` is not hard for {}: it shares {in_name:?} and {in_description:?}", tool.key())
    })
}

fn stems(text: &str) -> BTreeSet<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    let text = text.to_lowercase().replace(['\'', '’'], "");
    let words = text.split(|char: char| !char.is_alphanumeric()).filter(|word| word.len() > 1);
    let words = words.filter(|word| !STOP_WORDS.split_whitespace().any(|stop| stop == *word));
    words.map(|word| stemmer.stem(word).into_owned()).collect()
}

/// A name in camel case as words.
fn split_case(name: &str) -> String {
    let mut split = String::new();
    for char in name.chars() {
        if char.is_uppercase() && split.ends_with(|before: char| before.is_lowercase()) {
            split.push(' ');
        }
        split.push(char);
    }
    split
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> PublicTool {
        PublicTool {
            server: "mail".to_owned(),
            name: name.to_owned(),
            title: None,
            description: Some(description.to_owned()),
            parameters: Vec::new(),
        }
    }

    #[test]
    fn both_halves_have_a_third_of_each_level() {
        let halves = Half::ALL.map(|half| read(half).unwrap());
        assert!(halves.iter().map(Vec::len).sum::<usize>() >= crate::MIN_QUESTIONS);
        for half in &halves {
            for level in Level::ALL {
                let count = half.iter().filter(|question| question.level == level).count();
                assert_eq!(count * 3, half.len(), "{level:?}");
            }
        }
    }

    #[test]
    fn no_question_is_asked_twice() {
        let all = Half::ALL.iter().flat_map(|half| read(*half).unwrap());
        let mut texts: Vec<String> = all.map(|question| question.text).collect();
        let count = texts.len();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), count);
    }

    #[test]
    fn a_hard_question_shares_no_stem_with_the_name_and_one_with_the_description() {
        let send = tool("sendEmail", "Delivers a letter to a person.");
        assert_eq!(too_easy("write to a person", &send), None);
        assert!(too_easy("sending something", &send).is_some());
        assert!(too_easy("my emails", &send).is_some());
        assert!(too_easy("a letter for one person", &send).is_some());
    }

    #[test]
    fn a_question_about_a_tool_that_a_listed_server_lacks_is_a_mistake() {
        let tools = [tool("send", "")];
        let question = |right: &str| Question::parse(&format!("easy\tsend\t{right}")).unwrap();
        assert!(check(&[question("mail/send")], &tools).is_ok());
        assert!(check(&[question("mail/sent")], &tools).is_err());
        assert!(check(&[question("other/sent")], &tools).is_ok());
        assert!(!question("other/sent").is_answerable(&tools));
    }
}
