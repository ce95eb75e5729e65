//! The promises to users, by number. Tests, messages and documents refer to a promise by its number.

/// A group of promises under one heading.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) behaviours: &'static [Behaviour],
}

pub(super) struct Behaviour {
    pub(super) number: &'static str,
    pub(super) promise: &'static str,
}

const fn promised(number: &'static str, promise: &'static str) -> Behaviour {
    Behaviour { number, promise }
}

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "Never lose a server",
        behaviours: &[
            promised(
                "B01",
                "Each server has one supervisor, which ends only on removal or shutdown; every state that waits shows its next wake-up",
            ),
            promised(
                "B02",
                "A server that dies is reconnected at once, without a call; further attempts follow quickly, then with doubling pauses up to 30 s, with jitter",
            ),
            promised(
                "B03",
                "Too many restarts within the window, or a whole window of outage, park a server; a parked server probes itself and wakes on a call",
            ),
            promised(
                "B04",
                "Only proven health clears the restart count, never a handshake: a server that connects and dies every second gets parked",
            ),
            promised(
                "B05",
                "A recovery is complete when the catalog was listed, compared and published, and the clients were notified",
            ),
            promised(
                "B06",
                "Tools of an unavailable server stay listed byte for byte, also across a gateway restart, or are withdrawn if so configured",
            ),
            promised(
                "B07",
                "A server that is down when the gateway starts joins later by itself; start-up waits no longer than `startup_wait`",
            ),
            promised("B08", "A failing server never delays, fails or unlists another server"),
            promised(
                "B09",
                "A problem that retrying cannot fix gets its own state and one suggested action, and causes no retry storm",
            ),
            promised(
                "B10",
                "After the machine slept, links are probed before they are used, one after another",
            ),
        ],
    },
    Section {
        title: "Circuit breaker",
        behaviours: &[
            promised("B11", "Consecutive transport failures open the circuit at the threshold"),
            promised(
                "B12",
                "Tool errors, application errors, policy refusals, cancelled calls and calls that raced a reconnect never count for the circuit",
            ),
            promised(
                "B13",
                "While the circuit is open, calls are refused without using the link, and the error gives the time of the next trial",
            ),
            promised(
                "B14",
                "After the cooldown exactly one call is the trial; an abandoned trial frees its place",
            ),
            promised(
                "B15",
                "A successful trial closes the circuit and clears the count; a failed trial starts a new cooldown",
            ),
            promised(
                "B16",
                "A trial without a working link requests a reconnect and never writes into a dead pipe",
            ),
            promised("B17", "A completed connect closes the circuit, on any transport"),
            promised("B18", "The next call after a recovery is sent without delay"),
        ],
    },
    Section {
        title: "Calls",
        behaviours: &[
            promised(
                "C01",
                "Every failure states what failed, for which server, and what happens next, as text and as structured data",
            ),
            promised("C02", "Failure codes are a closed set"),
            promised(
                "C03",
                "No call hangs: connect, call, progress and absolute timeouts end that call and no other, and the link is probed at once",
            ),
            promised(
                "C04",
                "A call during a reconnect is held for a while and then sent; a parked, blocked or stopped server and an open circuit answer at once",
            ),
            promised(
                "C05",
                "At most once: a request is repeated only if it provably did not run or may safely run again; otherwise it ends as `outcome_unknown`",
            ),
            promised(
                "C06",
                "Calls to one server run in parallel up to a limit, then wait in a bounded queue, then fail with `overloaded`",
            ),
            promised(
                "C07",
                "A cancellation reaches the server in the form of its era, frees the slot and affects no other call",
            ),
            promised("C08", "A cancellation never causes a reconnect"),
        ],
    },
    Section {
        title: "Sessions and liveness",
        behaviours: &[
            promised(
                "D01",
                "An expired session is recognized by type and by a table of known messages; similar messages are not mistaken for it",
            ),
            promised(
                "D02",
                "One new session serves all calls that lost the old one; each refused request is sent once more, and no loop follows",
            ),
            promised("D03", "Session renewal works the same for every method, including unknown ones"),
            promised(
                "D04",
                "A new session gets the old state back: log level, subscriptions, roots, streams, calls marked `restore`",
            ),
            promised(
                "D05",
                "A silent link is probed in the form of its era, also while calls are in flight, and never without the session",
            ),
            promised(
                "D06",
                "A failed probe causes a reconnect and fails no call; after twelve silent hours the first call works",
            ),
            promised("D07", "An HTTP error, or an error without an id, ends the request that it answers"),
            promised(
                "D08",
                "Servers of both eras work; the detected era is remembered and checked again when it fails; a server that exits on the probe is legacy",
            ),
        ],
    },
    Section {
        title: "Credentials",
        behaviours: &[
            promised(
                "E01",
                "A 401 causes one token refresh for all callers, then one repetition of each refused request",
            ),
            promised(
                "E02",
                "A token that another process rotated is adopted; a failed refresh never loses credentials",
            ),
            promised(
                "E03",
                "When a person has to act, the error says so and how; after the login the server recovers by itself",
            ),
            promised(
                "E04",
                "OAuth 2.1 is supported in full; tokens are refreshed before they expire and stored privately; static headers and tokens work too",
            ),
        ],
    },
    Section {
        title: "Host operations",
        behaviours: &[
            promised(
                "F01",
                "The host has spawn, stop, start, reload, reconnect, tools, call, discover and status; an unknown name suggests the nearest one",
            ),
            promised(
                "F02",
                "Lazy servers are listed without being started, start on first use, and stop when they are idle and not in use",
            ),
            promised(
                "F03",
                "Status shows the whole condition of a server and never says `ready` unless a call would work",
            ),
            promised(
                "F04",
                "Logs, metrics and traces come from one typed event; a state change is logged once, and repetitions are counted",
            ),
        ],
    },
    Section {
        title: "Policy",
        behaviours: &[
            promised(
                "G01",
                "Allow and deny lists: a denied item is absent from lists and looks unknown when it is called",
            ),
            promised(
                "G02",
                "Schema pins: a changed tool stays quarantined in its approved form until a person approves the change",
            ),
            promised("G03", "Budgets and rates apply per client, server and tool; a cache hit costs nothing"),
            promised(
                "G04",
                "Caching follows the hints of the server, is bounded, and never shares private results between principals",
            ),
            promised(
                "G05",
                "Clients authenticate, or only loopback is served; every call can be audited, without secrets",
            ),
            promised(
                "G06",
                "Child processes get a filtered environment and their own process group; none of them outlives the gateway, even after `kill -9`",
            ),
            promised(
                "G07",
                "Junk is skipped and counted, oversized frames end in a clear error, duplicate keys and mismatched headers are refused",
            ),
        ],
    },
    Section {
        title: "Tool search",
        behaviours: &[
            promised(
                "H01",
                "With `exposure = \"search\"` a client's list has the search tools and the tools in `always`; every tool that the client may use can be found, described and called",
            ),
            promised(
                "H02",
                "A call through `call_tool` is a call of the tool that it names, in everything: budgets, ledger, progress, cancellation, questions, tasks, structured content, errors",
            ),
            promised(
                "H03",
                "A tool that the client may not use is neither found nor described nor called; the errors are those of an unknown tool",
            ),
            promised("H04", "`call_read_only_tool` calls only tools that their servers mark as read-only"),
            promised(
                "H05",
                "`auto` uses search for each client whose list has more tokens than `exposure_limit`; the estimate is within 10 % of a tokenizer",
            ),
            promised(
                "H06",
                "`load = true` adds found tools to the list of their session, with a notification; of more than 32 the ones found or called longest ago are removed",
            ),
            promised(
                "H07",
                "A changed tool is found as soon as it is listed; only changed tools are indexed again",
            ),
            promised(
                "H08",
                "Embeddings are optional: while their endpoint fails, in whatever way, a search answers by words in bounded time; only texts of tools and queries are sent",
            ),
        ],
    },
];

pub(super) fn all() -> impl Iterator<Item = &'static Behaviour> {
    SECTIONS.iter().flat_map(|section| section.behaviours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_number_once_and_in_order() {
        let numbers: Vec<_> = all().map(|behaviour| behaviour.number.to_owned()).collect();
        let series = [('B', 18), ('C', 8), ('D', 8), ('E', 4), ('F', 4), ('G', 7), ('H', 8)];
        let expected: Vec<_> = series
            .iter()
            .flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n:02}")))
            .collect();
        assert_eq!(numbers, expected);
    }
}
