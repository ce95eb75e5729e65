//! The report: text for the terminal, and the page `docs/search-quality.md`.

use gripfast_measure::figure::Figure;
use gripfast_measure::place::Place;
use gripfast_measure::table::Table;

use crate::catalog::Collected;
use crate::drivers::IndexReport;
use crate::estimate::EstimateError;
use crate::gateway::GatewayReport;
use crate::quality::Quality;
use crate::question_set::{Half, Level};

/// Bytes of index per tool.
const MAX_BYTES: f64 = 2048.0;

/// Share of the full list's tokens that a client lists at most.
const MAX_SHARE: f64 = 0.1;

/// Longest time from a list change until a new tool is found.
const MAX_CHANGE_MS: f64 = 50.0;

/// Results of a run.
#[derive(Debug)]
pub(crate) struct SearchReport {
    pub(crate) quality: Quality,
    pub(crate) collected: Collected,
    /// The index with the collected tools.
    pub(crate) ours: IndexReport,
    /// The index with many copies of them.
    pub(crate) many: IndexReport,
    /// A gateway with all servers.
    pub(crate) gateway: GatewayReport,
    /// The worst estimate of tokens.
    pub(crate) estimate: EstimateError,
    /// The number of questions that could be asked.
    pub(crate) questions: Figure,
}

impl SearchReport {
    /// Goals of the run with their measured values.
    pub(crate) fn goals(&self) -> Vec<Figure> {
        let mut goals = vec![self.questions.clone()];
        goals.extend(goals_of_search(&self.quality, &self.ours, &self.many));
        goals.extend(gateway_goals(&self.gateway));
        goals.push(self.estimate.goal());
        goals
    }

    /// The report for the terminal.
    pub(crate) fn text(&self) -> String {
        let goals: String = self.goals().iter().map(Figure::to_text).collect();
        text(&self.quality, &self.collected, &self.ours, &self.many, &goals)
    }

    /// The page of the documentation.
    pub(crate) fn markdown(&self, place: &Place) -> String {
        let goals: String = self.goals().iter().map(Figure::to_markdown).collect();
        markdown(place, &self.quality, &self.collected, &self.ours, &self.many, &goals)
    }
}

/// Goals of the gateway with their measured values.
pub(crate) fn gateway_goals(gateway: &GatewayReport) -> [Figure; 2] {
    let GatewayReport { tools, listed_tokens, all_tokens, change_ms, longest_change_ms, changed_tools } =
        *gateway;
    let share = listed_tokens as f64 / all_tokens.max(1) as f64;
    let tokens = Figure {
        goal: "tokens of a client's list with search: at most 10 % of the full list".to_owned(),
        measured: format!("{:.2} %: {listed_tokens} of {all_tokens} tokens, {tools} tools", share * 100.0),
        met: share <= MAX_SHARE,
    };
    let change = Figure {
        goal: "from a list change until a search finds the new tool (p50): at most 50 ms".to_owned(),
        measured: format!(
            "{change_ms:.1} ms, longest {longest_change_ms:.1} ms; server with {changed_tools} tools"
        ),
        met: change_ms <= MAX_CHANGE_MS,
    };
    [tokens, change]
}

/// Goal of the number of questions whose tools could be listed: of both halves, and of the judging half.
pub(crate) fn question_goal(tuning: usize, judging: usize, [least, least_judged]: [usize; 2]) -> Figure {
    Figure {
        goal: format!("questions that can be answered: at least {least}, {least_judged} of them for judging"),
        measured: format!("{}, {judging} for judging", tuning + judging),
        met: tuning + judging >= least && judging >= least_judged,
    }
}

fn goals_of_search(quality: &Quality, ours: &IndexReport, many: &IndexReport) -> Vec<Figure> {
    let [gripfast, bm25, fastmcp] = &quality.candidates;
    let mut goals = Vec::new();
    for (level, least) in [(Level::Easy, 0.97), (Level::Medium, 0.90)] {
        let top = gripfast.top(5, Some(level));
        goals.push(Figure {
            goal: format!(
                "{} questions: right tool among the first five: at least {:.0} %",
                level.word(),
                least * 100.0
            ),
            measured: format!("{:.1} %", top.value * 100.0),
            met: top.value >= least,
        });
    }
    let ahead = gripfast.ahead_of(bm25, Some(Level::Hard));
    goals.push(Figure {
        goal: "hard questions: at least 10 points above plain BM25 (top-5)".to_owned(),
        measured: format!("{} points", ahead.percent()),
        met: ahead.value >= 0.1,
    });
    for other in [bm25, fastmcp] {
        let ahead = gripfast.ahead_of(other, None);
        let mrr = (gripfast.mrr(None).value, other.mrr(None).value);
        goals.push(Figure {
            goal: format!("all questions: above {} (top-5 and MRR)", other.name),
            measured: format!("{} points; MRR {:.3} to {:.3}", ahead.percent(), mrr.0, mrr.1),
            met: ahead.value > 0.0 && mrr.0 > mrr.1,
        });
    }
    goals.push(Figure {
        goal: format!("a search over {} tools (p50): at most 1 ms", many.tools),
        measured: format!("{:.3} ms", many.search_p50_us / 1000.0),
        met: many.search_p50_us <= 1000.0,
    });
    let bytes = [ours, many].map(|run| run.resident_bytes as f64 / run.tools.max(1) as f64);
    goals.push(Figure {
        goal: "memory of the index per tool: at most 2 KB".to_owned(),
        measured: format!(
            "{:.0} B with {} tools, {:.0} B with {}",
            bytes[0], ours.tools, bytes[1], many.tools
        ),
        met: bytes.iter().all(|bytes| *bytes <= MAX_BYTES),
    });
    goals.push(Figure {
        goal: "update of the index after a list change of the largest server: at most 50 ms".to_owned(),
        measured: format!("{:.1} ms for {} tools", many.update_ms, many.update_tools),
        met: many.update_ms <= 50.0,
    });
    goals
}

fn quality_table(quality: &Quality) -> Table {
    let mut table = Table::new(2, &["questions", "search", "number", "top-1 %", "top-5 %", "MRR"]);
    let levels = Level::ALL.into_iter().map(|level| (level.word(), Some(level))).chain([("all", None)]);
    for (word, level) in levels {
        for candidate in &quality.candidates {
            table.row(vec![
                word.to_owned(),
                candidate.name.to_owned(),
                candidate.count(level).to_string(),
                candidate.top(1, level).percent(),
                candidate.top(5, level).percent(),
                candidate.mrr(level).plain(),
            ]);
        }
    }
    table
}

fn cost_table(ours: &IndexReport, many: &IndexReport) -> Table {
    let mut table = Table::new(
        0,
        &[
            "tools",
            "build ms",
            "search p50 µs",
            "search p99 µs",
            "resident B per tool",
            "estimated B per tool",
        ],
    );
    for run in [ours, many] {
        let tools = run.tools.max(1) as f64;
        table.row(vec![
            run.tools.to_string(),
            format!("{:.0}", run.build_ms),
            format!("{:.0}", run.search_p50_us),
            format!("{:.0}", run.search_p99_us),
            format!("{:.0}", run.resident_bytes as f64 / tools),
            format!("{:.0}", run.heap_bytes as f64 / tools),
        ]);
    }
    table
}

fn failed(collected: &Collected) -> String {
    let line = |(server, why): &(String, String)| format!("- {server}: {why}\n");
    collected.failed.iter().map(line).collect()
}

fn text(
    quality: &Quality,
    collected: &Collected,
    ours: &IndexReport,
    many: &IndexReport,
    goals: &str,
) -> String {
    format!(
        "{} tools of {} servers, {} half of the questions\n\n{}\n{}\n{goals}{}",
        collected.tools.len(),
        collected.listed.len(),
        quality.half.word(),
        quality_table(quality).to_text(),
        cost_table(ours, many).to_text(),
        failed(collected)
    )
}

fn markdown(
    place: &Place,
    quality: &Quality,
    collected: &Collected,
    ours: &IndexReport,
    many: &IndexReport,
    goals: &str,
) -> String {
    let Place { command, machine, load, date } = place;
    let mut servers = Table::new(2, &["server", "package", "tools"]);
    for (name, package, tools) in &collected.listed {
        servers.row(vec![name.clone(), package.clone(), tools.to_string()]);
    }
    let left_out = match failed(collected) {
        none if none.is_empty() => "None.\n".to_owned(),
        list => list,
    };
    let warning = match quality.half {
        Half::Judging => "",
        Half::Tuning => {
            "These are the questions that the search was tuned with, so the results are too good.\n\n"
        }
    };
    format!(
        "# Quality of tool search\n\n\
         How often the search for tools finds the right one. `cargo xtask bench search --write docs/search-quality.md` \
         writes\nthis page. It starts public MCP servers, lists their tools, and asks questions whose right tools are \
         known.\n\n{METHOD}\n\
         ## Results\n\n{warning}\
         `{command}`, {date}, on {machine}; load before the run {load}. {} tools of {} servers; the {} half of the \
         questions.\n\n\
         | | goal | measured |\n|---|---|---:|\n{goals}\n{}\n## Cost\n\n{COST}\n{}\n## Servers\n\n{}\n\
         Servers of the table that could not be listed in this run:\n\n{left_out}",
        collected.tools.len(),
        collected.listed.len(),
        quality.half.word(),
        quality_table(quality).to_markdown(),
        cost_table(ours, many).to_markdown(),
        servers.to_markdown()
    )
}

const METHOD: &str = "\
## Method

- **Catalogs.** The servers of `crates/bench/search/servers.tsv` are installed from npm and PyPI in fixed versions,
  started over stdio with made-up credentials, and listed. Nothing of theirs is in the repository, and no tool is called.
- **Questions.** They are our own, in `crates/bench/search/tuning.tsv` and `judging.tsv`. Each names the right tool; a few
  name several, because servers overlap. The search was tuned on the tuning half; the judging half gives the results.
- **Levels.** A third of the questions is easy: it uses words of the tool. A third is medium: inflections and synonyms. A
  third is hard: it shares no stem with the tool's name and at most one with its description. The run checks this for
  every hard question. Words such as `the` and `which` are not counted. A product's name may be in a question.
- **Searches.** gripfast is the index of `core::search`. Plain BM25 has all text of a tool in one bag of lower-case
  words, with k1 = 1.2 and b = 0.75. FastMCP is its `BM25SearchTransform`, asked through a FastMCP client; tools carry
  the name of their server as prefix. All three read the same text; FastMCP does not read titles.
- **Figures.** Top-1 and top-5 are the shares of questions whose right tool is first, or among the first five. MRR is the
  mean of 1 / rank, 0 beyond rank 10. Intervals are for 95 %: Wilson's for shares, bootstrap over questions for MRR and
  for differences.
- **Gateway.** A gateway with exposure `search` and all servers, which replay their catalogs, gives the tokens of a
  client's list (by gripfast's own estimate, with the four search tools) and the time of a list change: from the request
  that makes the largest server add a tool, over its `list_changed`, until a search finds the tool. The changes are
  more than a second apart, because gripfast lists a server at most twice within a second: the third change within a
  second is found at its end.
- **Tokens.** The estimate for the catalog of each server is compared with npm `gpt-tokenizer`, in the encodings
  `o200k_base` and `cl100k_base`. The table has the largest error.
- **Limits.** The same author wrote the questions and the table of synonyms. The table was written before the questions
  and extended after misses in the tuning half; no line was added for a question of the judging half. Questions of other
  people may give other results. Hard questions stay hard for a search by words: see the results.
";

const COST: &str = "\
Index with the collected tools, and with copies of them under other server names. Resident memory is the growth of
the process while it builds the index; the estimate is `ToolIndex::heap_bytes`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_questions_miss_the_goal() {
        let met = |tuning, judging| question_goal(tuning, judging, [400, 200]).met;
        assert!(met(200, 200) && met(100, 300));
        assert!(!met(199, 200) && !met(300, 199));
    }
}
