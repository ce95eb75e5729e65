//! An inverted index over the stems of tools, with fields and weights. `ranking` searches it.
//!
//! All lengths are compared with constants instead of averages over all tools. So a tool's own numbers do not depend on
//! other tools, and adding or removing one tool touches only its own stems.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ranking::letters;
use super::tokens::{is_stop_word, stem, words};
use super::{ParameterText, ToolText};

/// A field of a tool: its weight, and the part of it that is read.
struct Field {
    /// Weight of one word.
    weight: f32,
    /// Words that are read. The rest is left out, so that a server cannot fill the index.
    max_words: usize,
    /// Usual number of words.
    usual: f32,
    /// Share of the weight that depends on the number of words: a word among few says more than a word among many.
    by_length: f32,
}

const NAME: Field = Field { weight: 5.0, max_words: 16, usual: 3.0, by_length: 0.5 };
const SERVER: Field = Field { weight: 3.0, max_words: 8, usual: 1.0, by_length: 0.0 };
const TITLE: Field = Field { weight: 2.5, max_words: 16, usual: 3.0, by_length: 0.5 };
const DESCRIPTION: Field = Field { weight: 0.7, max_words: 100, usual: 20.0, by_length: 0.6 };
const PARAMETER_NAMES: Field = Field { weight: 0.4, max_words: 40, usual: 6.0, by_length: 0.5 };
const PARAMETER_TEXTS: Field = Field { weight: 0.3, max_words: 60, usual: 30.0, by_length: 0.6 };

/// Words of one parameter's description that are read.
const WORDS_PER_PARAMETER: usize = 12;

/// Bytes of a text that are looked at.
const MAX_TEXT: usize = 8 * 1024;

/// Parameters that are looked at.
const MAX_PARAMETERS: usize = 64;

/// Saturation: with this weight a stem has half of its possible effect.
const HALF: f32 = 1.2;

/// Bytes of the whole index, by the estimate of [`ToolIndex::bytes`]. Tools beyond it are not found.
const MAX_BYTES: usize = 64 << 20;

/// Bytes of the index above which only the names of further tools are read. Names have the rest of the room.
const MAX_TEXT_BYTES: usize = 48 << 20;

/// Words of one server. Beyond them, only the names of its further tools are read. Four thousand usual tools fit.
const MAX_SERVER_WORDS: usize = 250_000;

/// Bytes of a word of a tool: a posting with the usual free room of its list, and the number of the stem.
const WORD_BYTES: usize = size_of::<Posting>() * 5 / 4 + size_of::<u32>();

/// Bytes of an entry of a map: a node of a BTreeMap is about two thirds full.
const ENTRY_BYTES: usize = size_of::<(Arc<str>, u32)>() * 3 / 2;

/// A tool that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Key of the tool: its public name.
    pub key: String,
    /// Rank value. Comparable only within one answer.
    pub score: f32,
}

/// Index of tools by their text.
#[derive(Debug, Clone, Default)]
pub struct ToolIndex {
    keys: BTreeMap<Arc<str>, u32>,
    pub(super) tools: Vec<Option<IndexedTool>>,
    free_tools: Vec<u32>,
    /// Numbers of the stems.
    pub(super) stems: BTreeMap<Arc<str>, u32>,
    /// By the number of the stem.
    pub(super) postings: Vec<Postings>,
    /// Letters of each stem, by its number. A search for a misspelt word looks at all of them.
    pub(super) letters: Vec<u64>,
    free_postings: Vec<u32>,
    /// Words of each server's tools.
    servers: BTreeMap<Arc<str>, usize>,
    /// Tools of which only the name was read.
    names_only: usize,
    /// Estimate of the memory in use, updated with every change.
    bytes: usize,
    /// Increases with every change.
    pub(super) generation: u64,
}

#[derive(Debug, Clone)]
pub(super) struct IndexedTool {
    pub(super) key: Arc<str>,
    server: Arc<str>,
    /// All of the text was read, not only the name.
    has_text: bool,
    /// Digest of the text, to skip a tool that did not change.
    digest: u64,
    pub(super) stems: Box<[u32]>,
    /// Different stems of the name.
    pub(super) name_stems: u16,
}

/// Tools that contain a stem, by their place.
#[derive(Debug, Clone)]
pub(super) struct Postings {
    pub(super) stem: Arc<str>,
    pub(super) tools: Vec<Posting>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) tool: u32,
    /// Effect of the stem in this tool, between 0 and [`FULL`].
    pub(super) effect: u16,
    pub(super) in_name: bool,
}

pub(super) const FULL: f32 = 65_535.0;

impl Postings {
    /// Adds a tool, or replaces its effect.
    fn set(&mut self, posting: Posting) {
        match self.tools.binary_search_by_key(&posting.tool, |known| known.tool) {
            Ok(at) => self.tools[at] = posting,
            Err(at) => {
                // Most stems belong to few tools, so that doubling from four would waste most of the memory.
                if self.tools.len() == self.tools.capacity() {
                    self.tools.reserve_exact(self.tools.len() / 2 + 1);
                }
                self.tools.insert(at, posting);
            }
        }
    }
}

impl ToolIndex {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool under a key (the public name), or replaces it. A tool whose text did not change costs little. If the
    /// index is full, it reads the name alone, or nothing.
    pub fn insert(&mut self, key: &str, text: &ToolText<'_>) {
        let digest = digest(text);
        if self.tool(key).is_some_and(|tool| tool.digest == digest && tool.has_text) {
            return;
        }
        let mut weights = StemWeights::of(text);
        let has_text = self.has_room(key, text.server, &weights);
        if !has_text {
            weights = StemWeights::of_name(text);
            if self.bytes + weights.bytes(key) > MAX_BYTES {
                self.remove(key);
                return;
            }
        }
        self.generation += 1;
        let name_stems = weights.0.values().filter(|weight| weight.in_name).count();
        let place = self.keys.get(key).copied().unwrap_or_else(|| self.free_place());
        let mut stems = Vec::with_capacity(weights.0.len());
        for (stem, weight) in weights.0 {
            let effect = (weight.total / (HALF + weight.total) * FULL) as u16;
            let number = self.stem_number(&stem);
            self.postings[number as usize].set(Posting { tool: place, effect, in_name: weight.in_name });
            stems.push(number);
        }
        stems.sort_unstable();
        let before = self.tools[place as usize].take();
        if let Some(before) = &before {
            self.discount(before);
        }
        let before = before.map(|tool| tool.stems).unwrap_or_default();
        for number in before.into_iter().filter(|number| stems.binary_search(number).is_err()) {
            self.remove_posting(number, place);
        }
        let key: Arc<str> = key.into();
        let name_stems = u16::try_from(name_stems).unwrap_or(u16::MAX);
        let stems = stems.into_boxed_slice();
        let server = self.servers.get_key_value(text.server).map(|(server, _)| Arc::clone(server));
        let server = server.unwrap_or_else(|| text.server.into());
        let tool = IndexedTool { key: Arc::clone(&key), server, has_text, digest, stems, name_stems };
        self.count(&tool);
        self.tools[place as usize] = Some(tool);
        self.keys.insert(key, place);
    }

    /// Removes a tool.
    pub fn remove(&mut self, key: &str) {
        let Some(place) = self.keys.remove(key) else { return };
        self.generation += 1;
        let tool = self.tools[place as usize].take().expect("a key names a tool");
        self.discount(&tool);
        self.free_tools.push(place);
        for number in tool.stems {
            self.remove_posting(number, place);
        }
    }

    /// True for a tool of which all text was read. False if the index was full.
    #[must_use]
    pub fn has_text_of(&self, key: &str) -> bool {
        self.tool(key).is_some_and(|tool| tool.has_text)
    }

    /// Number of tools of which only the name was read, because the index was full.
    #[must_use]
    pub fn names_only(&self) -> usize {
        self.names_only
    }

    /// Number of tools.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True without tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes on the heap, estimated from the capacities of all parts.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let text = |text: &Arc<str>| text.len() + 2 * size_of::<usize>();
        let tools = self.tools.iter().flatten().map(|tool| text(&tool.key) + tool.stems.len() * 4);
        let postings = self
            .postings
            .iter()
            .map(|postings| text(&postings.stem) + postings.tools.capacity() * size_of::<Posting>());
        tools.sum::<usize>()
            + postings.sum::<usize>()
            + self.tools.capacity() * size_of::<Option<IndexedTool>>()
            + self.postings.capacity() * size_of::<Postings>()
            + self.letters.capacity() * size_of::<u64>()
            + (self.keys.len() + self.stems.len()) * ENTRY_BYTES
            + (self.free_tools.capacity() + self.free_postings.capacity()) * 4
    }

    /// True if all stems of a tool fit, as if no other tool had them.
    fn has_room(&self, key: &str, server: &str, weights: &StemWeights) -> bool {
        let before = self.tool(key).filter(|tool| &*tool.server == server).map_or(0, |tool| tool.stems.len());
        let words = self.servers.get(server).copied().unwrap_or_default() - before;
        words + weights.0.len() <= MAX_SERVER_WORDS && self.bytes + weights.bytes(key) <= MAX_TEXT_BYTES
    }

    fn count(&mut self, tool: &IndexedTool) {
        *self.servers.entry(Arc::clone(&tool.server)).or_default() += tool.stems.len();
        self.names_only += usize::from(!tool.has_text);
        self.bytes += tool.bytes();
    }

    fn discount(&mut self, tool: &IndexedTool) {
        if let Some(words) = self.servers.get_mut(&tool.server) {
            *words -= tool.stems.len();
            if *words == 0 {
                self.servers.remove(&tool.server);
            }
        }
        self.names_only -= usize::from(!tool.has_text);
        self.bytes -= tool.bytes();
    }

    fn tool(&self, key: &str) -> Option<&IndexedTool> {
        self.tools[*self.keys.get(key)? as usize].as_ref()
    }

    fn free_place(&mut self) -> u32 {
        self.free_tools.pop().unwrap_or_else(|| {
            self.tools.push(None);
            u32::try_from(self.tools.len() - 1).expect("there are fewer tools than numbers")
        })
    }

    /// Removes a tool from a stem, and the stem with its last tool.
    fn remove_posting(&mut self, number: u32, place: u32) {
        let postings = &mut self.postings[number as usize];
        if let Ok(at) = postings.tools.binary_search_by_key(&place, |posting| posting.tool) {
            postings.tools.remove(at);
        }
        if postings.tools.is_empty() {
            postings.tools = Vec::new();
            self.bytes -= stem_bytes(&postings.stem);
            self.stems.remove(&postings.stem);
            self.free_postings.push(number);
        }
    }

    fn stem_number(&mut self, stem: &str) -> u32 {
        if let Some(number) = self.stems.get(stem) {
            return *number;
        }
        self.bytes += stem_bytes(stem);
        let stem: Arc<str> = stem.into();
        let postings = Postings { stem: Arc::clone(&stem), tools: Vec::new() };
        let number = match self.free_postings.pop() {
            Some(number) => {
                self.postings[number as usize] = postings;
                self.letters[number as usize] = letters(&stem);
                number
            }
            None => {
                self.postings.push(postings);
                self.letters.push(letters(&stem));
                u32::try_from(self.postings.len() - 1).expect("there are fewer stems than numbers")
            }
        };
        self.stems.insert(stem, number);
        number
    }
}

impl IndexedTool {
    fn bytes(&self) -> usize {
        tool_bytes(&self.key) + self.stems.len() * WORD_BYTES
    }
}

/// Bytes of a tool without its words.
fn tool_bytes(key: &str) -> usize {
    key.len() + 2 * size_of::<usize>() + size_of::<Option<IndexedTool>>() + ENTRY_BYTES
}

/// Bytes of a stem without its postings.
fn stem_bytes(stem: &str) -> usize {
    stem.len() + 2 * size_of::<usize>() + size_of::<Postings>() + size_of::<u64>() + ENTRY_BYTES
}

/// Weights of a tool's stems.
#[derive(Default)]
struct StemWeights(BTreeMap<String, StemWeight>);

#[derive(Default)]
struct StemWeight {
    total: f32,
    in_name: bool,
}

impl StemWeights {
    /// Bytes of a tool with these stems, if no other tool has them.
    fn bytes(&self, key: &str) -> usize {
        tool_bytes(key) + self.0.keys().map(|stem| stem_bytes(stem) + WORD_BYTES).sum::<usize>()
    }

    /// The stems of a tool's name and server.
    fn of_name(text: &ToolText<'_>) -> Self {
        let mut weights = Self::default();
        weights.add(&NAME, words_of(text.name, NAME.max_words));
        for weight in weights.0.values_mut() {
            weight.in_name = true;
        }
        weights.add(&SERVER, words_of(text.server, SERVER.max_words));
        weights
    }

    fn of(text: &ToolText<'_>) -> Self {
        let mut weights = Self::of_name(text);
        weights.add(&TITLE, words_of(text.title.unwrap_or_default(), TITLE.max_words));
        let description = text.description.unwrap_or_default();
        weights.add(&DESCRIPTION, words_of(description, DESCRIPTION.max_words));
        let names = parameters(text).flat_map(|parameter| words_of(parameter.name, NAME.max_words));
        weights.add(&PARAMETER_NAMES, names.take(PARAMETER_NAMES.max_words));
        let texts = parameters(text).filter_map(|parameter| parameter.description);
        let texts = texts.flat_map(|text| words_of(text, WORDS_PER_PARAMETER));
        weights.add(&PARAMETER_TEXTS, texts.take(PARAMETER_TEXTS.max_words));
        weights
    }

    /// Adds the stems of a field. A stem counts once, however often the field has it: a text that repeats a word says
    /// no more by it.
    fn add(&mut self, field: &Field, words: impl Iterator<Item = String>) {
        let (mut count, mut stems) = (0_u16, BTreeSet::new());
        for word in words {
            count += 1;
            stems.insert(stem(&word));
        }
        let length = f32::from(count) / field.usual;
        let weight = field.weight / (1.0 - field.by_length + field.by_length * length);
        for stem in stems {
            self.0.entry(stem).or_default().total += weight;
        }
    }
}

/// The first words of a text that have a meaning.
fn words_of(text: &str, limit: usize) -> impl Iterator<Item = String> {
    let forms = words(clipped(text)).flat_map(|word| word.forms().map(str::to_owned).collect::<Vec<_>>());
    forms.filter(|word| word.len() > 1 && !is_stop_word(word)).take(limit)
}

/// FNV-1a over all text that the index reads, with a byte between the fields that no text contains.
fn digest(text: &ToolText<'_>) -> u64 {
    let fields =
        [text.server, text.name, text.title.unwrap_or_default(), text.description.unwrap_or_default()];
    let of_parameters =
        parameters(text).flat_map(|parameter| [parameter.name, parameter.description.unwrap_or_default()]);
    let fields = fields.into_iter().chain(of_parameters).map(clipped);
    let bytes = fields.flat_map(|field| field.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn parameters<'a>(text: &ToolText<'a>) -> impl Iterator<Item = &'a ParameterText<'a>> {
    text.parameters.iter().take(MAX_PARAMETERS)
}

fn clipped(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool<'a>(server: &'a str, name: &'a str, description: &'a str) -> ToolText<'a> {
        ToolText { server, name, title: None, description: Some(description), parameters: &[] }
    }

    fn index(tools: &[ToolText<'_>]) -> ToolIndex {
        let mut index = ToolIndex::new();
        for tool in tools {
            index.insert(&format!("{}__{}", tool.server, tool.name), tool);
        }
        index
    }

    fn found(index: &ToolIndex, query: &str) -> Vec<String> {
        index.search(query, 10, None, |_| true).into_iter().map(|hit| hit.key).collect()
    }

    fn office() -> ToolIndex {
        index(&[
            tool("mail", "send_email", "Sends a message to a list of recipients."),
            tool("mail", "listFolders", "Lists the mailboxes of an account."),
            tool("git", "git_commit", "Records changes in the repository."),
            tool("git", "git_stash", "Puts uncommitted work aside."),
            tool("weather", "forecast", "Returns temperature and rain for a city."),
        ])
    }

    #[test]
    fn a_tool_is_found_by_the_parts_of_its_name() {
        assert_eq!(found(&office(), "send email")[0], "mail__send_email");
        assert_eq!(found(&office(), "list folders")[0], "mail__listFolders");
        assert_eq!(found(&office(), "git_commit")[0], "git__git_commit");
    }

    #[test]
    fn a_tool_is_found_by_each_of_its_fields() {
        let parameters =
            [ParameterText { name: "latitude", description: Some("degrees north of the equator") }];
        let forecast = ToolText {
            server: "meteo",
            name: "forecast",
            title: Some("Outlook"),
            description: Some("rain in a city"),
            parameters: &parameters,
        };
        let index = index(&[forecast, tool("mail", "send", "a message")]);
        for query in ["meteo", "forecast", "outlook", "rain", "latitude", "equator"] {
            assert_eq!(found(&index, query), ["meteo__forecast"], "{query}");
        }
    }

    #[test]
    fn the_name_says_more_than_the_description() {
        let index = index(&[
            tool("a", "archive", "Lets a user export something."),
            tool("b", "export", "Lets a user archive something."),
        ]);
        assert_eq!(found(&index, "export")[0], "b__export");
    }

    #[test]
    fn inflections_synonyms_and_phrases_find_a_tool() {
        assert_eq!(found(&office(), "committing")[0], "git__git_commit");
        assert_eq!(found(&office(), "directory")[0], "mail__listFolders");
        assert_eq!(found(&office(), "set aside what I did")[0], "git__git_stash");
    }

    #[test]
    fn a_misspelt_word_finds_its_neighbour() {
        assert_eq!(found(&office(), "forcast")[0], "weather__forecast");
        assert_eq!(found(&office(), "tempreature")[0], "weather__forecast");
        assert_eq!(found(&office(), "xqzw"), [""; 0]);
    }

    #[test]
    fn a_question_without_words_finds_nothing() {
        assert!(found(&office(), "").is_empty());
        assert!(found(&office(), "?! --").is_empty());
        assert!(found(&ToolIndex::new(), "send email").is_empty());
    }

    #[test]
    fn hidden_tools_are_not_found_and_do_not_take_the_place_of_others() {
        let mut index = ToolIndex::new();
        for number in 0..3000 {
            let name = format!("send_{number:04}");
            index.insert(&name, &tool("mail", "send", "a message"));
        }
        let last = |key: &str| key >= "send_2990";
        let visible = index.visible_tools(last);
        for hits in [
            index.search("send a message", 3, Some(&visible), |_| true),
            index.search("send a message", 3, None, last),
        ] {
            let keys: Vec<_> = hits.iter().map(|hit| hit.key.as_str()).collect();
            assert_eq!(keys, ["send_2990", "send_2991", "send_2992"]);
        }
        let none = index.visible_tools(|_| false);
        assert!(index.search("send", 3, Some(&none), |_| true).is_empty());
        assert!(index.search("send", 3, None, |_| false).is_empty());
        assert!(index.search("send", 0, None, |_| true).is_empty());
    }

    /// G01
    #[test]
    fn h03_scores_and_typing_errors_do_not_reveal_words_of_hidden_tools() {
        let index = office();
        let visible = index.visible_tools(|key| key.starts_with("mail"));
        let search = |query: &str| index.search(query, 10, Some(&visible), |_| true);
        let best = |query: &str| search(query).first().map(|hit| hit.score);
        assert_eq!(best("email forecast"), best("email qqqqq"), "a hidden word is an unknown word");
        let mut with_neighbour = index.clone();
        with_neighbour.insert("git__emayl", &tool("git", "emayl", "Emayl."));
        let visible = with_neighbour.visible_tools(|key| key.starts_with("mail"));
        let misspelt = with_neighbour.search("emayl", 10, Some(&visible), |_| true);
        assert_eq!(misspelt, search("emayl"), "a hidden tool does not end the search for similar words");
        assert_eq!(misspelt[0].key, "mail__send_email");
    }

    #[test]
    fn tools_from_before_a_change_are_not_found() {
        let mut index = office();
        let before = index.visible_tools(|_| true);
        assert!(before.is_valid_for(&index) && !index.search("email", 9, Some(&before), |_| true).is_empty());
        index.remove("git__git_stash");
        assert!(!before.is_valid_for(&index));
        assert!(index.search("email", 9, Some(&before), |_| true).is_empty());
    }

    #[test]
    fn text_without_spaces_is_found() {
        let index = index(&[
            tool("mail", "send", "向收件人列表发送带有附件的电子邮件，并在发送之后返回邮件的编号。"),
            tool("weather", "forecast", "都市の天気予報を取得し、気温と降水確率を返します。"),
            tool("files", "remove", "ลบไฟล์ออกจากโฟลเดอร์ของผู้ใช้"),
            tool("users", "list", "조직의모든사용자목록을가져옵니다."),
        ]);
        for (query, tool) in [
            ("发送电子邮件", "mail__send"),
            ("天気予報", "weather__forecast"),
            ("ลบไฟล์", "files__remove"),
            ("사용자 목록", "users__list"),
        ] {
            assert_eq!(found(&index, query).first().map(String::as_str), Some(tool), "{query}");
        }
    }

    #[test]
    fn a_misspelt_word_of_any_script_finds_its_neighbour() {
        let index = index(&[
            tool("mail", "send", "Отправляет сообщение или письмо."),
            tool("a", "b", "Что-то другое."),
        ]);
        assert_eq!(found(&index, "сообщениё"), ["mail__send"], "another letter");
        assert_eq!(found(&index, "писмо"), ["mail__send"], "a missing letter");
    }

    #[test]
    fn hits_are_sorted_by_score() {
        let hits = office().search("send an email to the repository", 10, None, |_| true);
        assert!(hits.len() > 1);
        assert!(hits.is_sorted_by(|left, right| left.score >= right.score));
    }

    #[test]
    fn a_replaced_tool_is_found_by_its_new_text_only() {
        let mut index = office();
        index.insert("weather__forecast", &tool("weather", "forecast", "Tells about tides."));
        assert_eq!(index.len(), 5);
        assert_eq!(found(&index, "tides"), ["weather__forecast"]);
        assert!(found(&index, "rain").is_empty());
    }

    #[test]
    fn an_unchanged_tool_is_not_indexed_again() {
        let mut index = office();
        let key = |index: &ToolIndex| Arc::clone(&index.tool("weather__forecast").unwrap().key);
        let before = key(&index);
        index.insert(
            "weather__forecast",
            &tool("weather", "forecast", "Returns temperature and rain for a city."),
        );
        assert!(Arc::ptr_eq(&before, &key(&index)));
        index.insert("weather__forecast", &tool("weather", "forecast", "Returns rain."));
        assert!(!Arc::ptr_eq(&before, &key(&index)));
    }

    #[test]
    fn removed_tools_leave_nothing_behind() {
        let mut index = office();
        let keys: Vec<String> = index.keys.keys().map(|key| key.to_string()).collect();
        for key in &keys {
            index.remove(key);
        }
        index.remove("mail__send_email");
        assert!(index.is_empty() && index.stems.is_empty());
        assert!(found(&index, "send email").is_empty());
        let before = index.heap_bytes();
        for round in 0..50 {
            index.insert("mail__send", &tool("mail", "send", &format!("text{round} word{round}")));
        }
        assert_eq!((index.len(), index.stems.len()), (1, 4));
        assert!(index.heap_bytes() < before + 1024);
    }

    #[test]
    fn a_repeated_word_does_not_lift_a_tool() {
        let stuffed = "send email ".repeat(5000);
        let index =
            index(&[tool("honest", "send_email", "Sends a message."), tool("greedy", "track", &stuffed)]);
        assert_eq!(found(&index, "send an email"), ["honest__send_email", "greedy__track"]);
    }

    #[test]
    fn a_description_that_repeats_a_word_ranks_below_one_that_has_it_once() {
        for repetitions in [2, 5, 50, 5000] {
            let stuffed = "Sends email. ".repeat(repetitions);
            let index =
                index(&[tool("greedy", "track", &stuffed), tool("honest", "deliver", "Sends email.")]);
            assert_eq!(found(&index, "send an email"), ["honest__deliver", "greedy__track"], "{repetitions}");
        }
    }

    #[test]
    fn a_description_full_of_keywords_does_not_lift_a_tool() {
        let keywords = "send email message mail file folder commit forecast weather issue page search";
        let stuffed = format!("{keywords} {keywords} {keywords} {keywords}");
        let mut index = office();
        index.insert("greedy__track", &tool("greedy", "track", &stuffed));
        for (query, honest) in [
            ("send an email", "mail__send_email"),
            ("commit changes", "git__git_commit"),
            ("weather forecast", "weather__forecast"),
        ] {
            assert_eq!(found(&index, query)[0], honest, "{query}");
        }
    }

    #[test]
    fn a_name_or_parameters_full_of_keywords_do_not_lift_a_tool() {
        let parameter =
            ParameterText { name: "send_email_message", description: Some("send an email message") };
        let parameters = [parameter; 200];
        let name = "sendEmailCommitForecastWeatherIssuePageSearchFileFolderListReadWriteUpdate";
        let greedy =
            ToolText { server: "greedy", name, title: None, description: None, parameters: &parameters };
        let mut index = office();
        index.insert("greedy__all", &greedy);
        assert_eq!(found(&index, "send an email")[0], "mail__send_email");
        assert_eq!(found(&index, "weather forecast")[0], "weather__forecast");
    }

    #[test]
    fn text_beyond_the_cap_is_not_indexed() {
        let long: String = (0..100_000).map(|number| format!("word{number} ")).collect();
        let parameters: Vec<String> = (0..500).map(|number| format!("parameter{number}")).collect();
        let parameters: Vec<ParameterText<'_>> =
            parameters.iter().map(|name| ParameterText { name, description: Some(&long) }).collect();
        let text = ToolText {
            server: &long,
            name: &long,
            title: Some(&long),
            description: Some(&long),
            parameters: &parameters,
        };
        let index = index(&[text]);
        assert!(index.stems.len() <= 256, "{}", index.stems.len());
        assert!(found(&index, "word99999").is_empty());
    }

    #[test]
    fn an_index_takes_two_kilobytes_per_tool_at_most() {
        let mut index = ToolIndex::new();
        for number in 0..400_u32 {
            // Sixty words per tool, of which three are its own, as in the catalogs of public servers.
            let word = |place: u32| match place % 20 {
                0 => format!("own{number}x{place} "),
                _ => format!("word{} ", (number * 31 + place * 97) % 600),
            };
            let description: String = (0..60).map(word).collect();
            let key = format!("server{}__some_usual_name_{number}", number / 50);
            index.insert(&key, &tool("server", "some_usual_name", &description));
        }
        let bytes = index.heap_bytes() / index.len();
        assert!((500..=2048).contains(&bytes), "{bytes} bytes per tool");
    }

    /// Tools of `server` whose words no other tool has.
    fn fill(index: &mut ToolIndex, server: &str, tools: usize) {
        for number in 0..tools {
            let word = |place: u32| format!("{server}{number}x{place} ");
            let description: String = (0..100).map(word).collect();
            let parameters: Vec<String> = (100..140).map(word).collect();
            let texts: Vec<String> =
                (0..5).map(|part| (140 + part * 12..152 + part * 12).map(word).collect()).collect();
            let parameters = parameters
                .iter()
                .enumerate()
                .map(|(at, name)| ParameterText { name, description: texts.get(at).map(String::as_str) });
            let parameters: Vec<ParameterText<'_>> = parameters.collect();
            let name = format!("name{number}");
            let description = Some(description.as_str());
            let text = ToolText { server, name: &name, title: None, description, parameters: &parameters };
            index.insert(&format!("{server}__{name}"), &text);
        }
    }

    #[test]
    fn a_server_with_too_many_words_is_searched_by_names_beyond_them() {
        let mut index = ToolIndex::new();
        fill(&mut index, "greedy", 1300);
        assert!(index.servers["greedy"] < MAX_SERVER_WORDS + 1300 * 24);
        assert!((1..400).contains(&index.names_only()), "{}", index.names_only());
        assert!(index.has_text_of("greedy__name0") && !index.has_text_of("greedy__name1299"));
        assert_eq!(found(&index, "name1299"), ["greedy__name1299"]);
        let by_text = index.search("greedy1299x1", 2000, None, |_| true);
        assert!(!by_text.iter().any(|hit| hit.key == "greedy__name1299"), "only its name was read");
        index.insert("honest__send", &tool("honest", "send", "Sends a message."));
        assert!(index.has_text_of("honest__send"), "another server has words of its own");
        for number in 0..600 {
            index.remove(&format!("greedy__name{number}"));
        }
        index.insert("greedy__name1299", &tool("greedy", "name1299", "Tells about tides."));
        assert_eq!(found(&index, "tides"), ["greedy__name1299"], "there is room again");
    }

    #[test]
    fn an_index_takes_64_megabytes_at_most_whatever_servers_write() {
        let mut index = ToolIndex::new();
        let servers: Vec<String> = (0..40_u8).map(|number| format!("server{number}")).collect();
        for server in &servers {
            fill(&mut index, server, 100);
        }
        assert!(index.bytes <= MAX_BYTES && index.bytes > MAX_TEXT_BYTES * 9 / 10, "{}", index.bytes);
        assert!(index.heap_bytes() <= MAX_BYTES * 3 / 2, "{}", index.heap_bytes());
        assert_eq!(index.len(), 4000, "the names of all tools fit");
        assert!(index.names_only() > 0);
        assert!(found(&index, "server39 name99").contains(&"server39__name99".to_owned()));
        let keys: Vec<Arc<str>> = index.keys.keys().cloned().collect();
        for key in keys {
            index.remove(&key);
        }
        assert_eq!((index.bytes, index.names_only(), index.servers.len()), (0, 0, 0));
    }

    #[test]
    fn typing_errors_are_corrected_in_a_bounded_number_of_words() {
        let index = office();
        let query = |unknown: usize| {
            let unknown: String = (0..unknown).map(|number| format!("zzzz{number} ")).collect();
            found(&index, &format!("{unknown} forcast"))
        };
        assert_eq!(query(3), ["weather__forecast"]);
        assert_eq!(query(30), [""; 0]);
    }

    proptest::proptest! {
        /// G01
        #[test]
        fn h03_a_search_depends_on_visible_tools_only(
            tools in proptest::collection::vec(("[ab]{1,2}_[abc]{3,9}", "[abcd]{2,9}( [abcd]{2,9}){0,5}", proptest::bool::ANY), 0..25),
            query in "[abcd]{2,9}( [abcd]{2,9}){0,4}",
        ) {
            let mut all = ToolIndex::new();
            let mut seen = ToolIndex::new();
            for (number, (name, description, is_visible)) in tools.iter().enumerate() {
                let key = format!("{}{number}", if *is_visible { "seen" } else { "hidden" });
                all.insert(&key, &tool("server", name, description));
                if *is_visible {
                    seen.insert(&key, &tool("server", name, description));
                }
            }
            let visible = all.visible_tools(|key| key.starts_with("seen"));
            for limit in [1, 50] {
                proptest::prop_assert_eq!(
                    all.search(&query, limit, Some(&visible), |_| true),
                    seen.search(&query, limit, None, |_| true)
                );
            }
        }

        #[test]
        fn an_index_after_any_history_answers_like_a_new_one(
            steps in proptest::collection::vec((0..6_usize, proptest::option::of("[abc]{2}( [abc]{2}){0,4}")), 1..40),
        ) {
            let mut grown = ToolIndex::new();
            let mut kept: BTreeMap<String, String> = BTreeMap::new();
            for (number, text) in steps {
                let key = format!("tool{number}");
                match text {
                    Some(text) => {
                        grown.insert(&key, &tool("server", "name", &text));
                        kept.insert(key, text);
                    }
                    None => {
                        grown.remove(&key);
                        kept.remove(&key);
                    }
                }
            }
            let mut fresh = ToolIndex::new();
            for (key, text) in &kept {
                fresh.insert(key, &tool("server", "name", text));
            }
            proptest::prop_assert_eq!(grown.len(), fresh.len());
            for query in ["ab", "bc ca", "server name", "aa bb cc"] {
                proptest::prop_assert_eq!(
                    grown.search(query, 10, None, |_| true),
                    fresh.search(query, 10, None, |_| true)
                );
            }
        }
    }
}
