//! Every promise that a user can see, by number. The numbers are labels for tests, messages and documents.

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
                "One owner per upstream; only removal or shutdown ends it, and every other state shows its next wake-up",
            ),
            promised(
                "B02",
                "What dies is brought back at once, unasked; then quickly, then in doubling steps up to 30 s, with jitter",
            ),
            promised(
                "B03",
                "Too many restarts in a window, or a whole window away, park a server; parked probes itself and wakes when asked",
            ),
            promised(
                "B04",
                "Only proven health forgives restarts, never a handshake: what connects and dies each second gets parked",
            ),
            promised(
                "B05",
                "A revival is complete when the catalog was listed, compared and published, and clients were told",
            ),
            promised(
                "B06",
                "Tools of a server that is away stay listed byte for byte, also across a restart; or are withdrawn, if so configured",
            ),
            promised(
                "B07",
                "A server that is down at the start comes in later by itself; start-up waits for nobody longer than `startup_wait`",
            ),
            promised("B08", "One server's failure never delays, fails or unlists another"),
            promised(
                "B09",
                "What retrying cannot mend gets its own state and one next action, and no storm of retries",
            ),
            promised(
                "B10",
                "After the machine slept, links are probed before they are trusted, one after the other",
            ),
        ],
    },
    Section {
        title: "Circuit breaker",
        behaviours: &[
            promised("B11", "Consecutive transport failures open the circuit at the threshold"),
            promised(
                "B12",
                "Tool errors, application errors, refusals by policy, cancelled calls and calls that raced a reconnect never count",
            ),
            promised(
                "B13",
                "While open, calls are refused without touching the link, with the time of the next trial",
            ),
            promised(
                "B14",
                "After the cooldown exactly one caller is the trial; an abandoned trial frees its place",
            ),
            promised(
                "B15",
                "A good trial closes the circuit and zeroes the count; a bad one starts a fresh cooldown",
            ),
            promised(
                "B16",
                "A trial without a live link asks for a reconnect and never writes into a dead pipe",
            ),
            promised("B17", "A completed connect closes the circuit, on any transport"),
            promised("B18", "The next call after recovery goes straight through"),
        ],
    },
    Section {
        title: "What a caller gets",
        behaviours: &[
            promised(
                "C01",
                "Every failure says what failed, for whom and what happens next, in words and in a machine part",
            ),
            promised("C02", "Failure codes are a closed set"),
            promised(
                "C03",
                "No call hangs: connect, call, progress and an absolute cap end it, and only it; the link is probed at once",
            ),
            promised(
                "C04",
                "A call during a reconnect is held for a while and then sent; parked, blocked, stopped and open answer at once",
            ),
            promised(
                "C05",
                "At most once: replayed only what provably did not run or may safely run again; the rest ends as `outcome_unknown`",
            ),
            promised(
                "C06",
                "Calls to one server run side by side up to a limit, then wait in a bounded queue, then are told `overloaded`",
            ),
            promised(
                "C07",
                "A cancel reaches the server in its era's form, frees the slot and touches no other call",
            ),
            promised("C08", "A cancel never causes a reconnect"),
        ],
    },
    Section {
        title: "Sessions and liveness",
        behaviours: &[
            promised(
                "D01",
                "An expired session is recognised by type and by a table of known forms, and look-alikes are not taken for one",
            ),
            promised(
                "D02",
                "One new session serves all calls that lost the old one; each refused request is sent once more, and no loop follows",
            ),
            promised("D03", "Session renewal works for every method alike, unknown ones included"),
            promised(
                "D04",
                "A new session gets the old state back: log level, subscriptions, roots, streams, calls marked `restore`",
            ),
            promised(
                "D05",
                "An idle link is probed in the manner of its era, never during a call and never without the session",
            ),
            promised(
                "D06",
                "A failed probe reconnects and fails nobody's call; after twelve silent hours the first call works",
            ),
            promised("D07", "An HTTP error, or an error without an id, ends the request that it answers"),
            promised(
                "D08",
                "Both eras; the verdict is remembered and checked again when it fails; a server that exits on the probe is legacy",
            ),
        ],
    },
    Section {
        title: "Credentials",
        behaviours: &[
            promised(
                "E01",
                "A 401 causes one refresh for all callers, then one replay of each refused request",
            ),
            promised(
                "E02",
                "A token that somebody else rotated is adopted; a failed refresh never loses credentials",
            ),
            promised(
                "E03",
                "When a person is needed the answer says so and how; after the login the server revives by itself",
            ),
            promised(
                "E04",
                "OAuth 2.1 in full, tokens refreshed ahead of expiry and stored privately; static headers and tokens as well",
            ),
        ],
    },
    Section {
        title: "Host verbs",
        behaviours: &[
            promised(
                "F01",
                "spawn, stop, start, reload, reconnect, tools, call, discover, status; a wrong name suggests the nearest one",
            ),
            promised(
                "F02",
                "Lazy servers start on first use, are listed without starting, and stop when idle and nobody holds them",
            ),
            promised(
                "F03",
                "Status tells the whole story of a server and never says ready unless a call would work",
            ),
            promised(
                "F04",
                "Logs, metrics and traces come from one typed event; a state change is logged once, repeats are counted",
            ),
        ],
    },
    Section {
        title: "Policy",
        behaviours: &[
            promised(
                "G01",
                "Allow and deny lists: what is denied is absent from lists and looks unknown when called",
            ),
            promised(
                "G02",
                "Schema pins: a changed tool is quarantined in its approved form until somebody approves the change",
            ),
            promised("G03", "Budgets and rates per client, server and tool; a cache hit costs nothing"),
            promised("G04", "Caching by the server's hints, bounded, never across principals when private"),
            promised(
                "G05",
                "Clients authenticate, or only loopback is served; every call can be audited, without secrets",
            ),
            promised(
                "G06",
                "Children get a filtered environment and their own group; nothing of them outlives us, even after kill -9",
            ),
            promised(
                "G07",
                "Junk is skipped and counted, oversized frames end in a clear error, doubled keys and mismatched headers are refused",
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
        let series = [('B', 18), ('C', 8), ('D', 8), ('E', 4), ('F', 4), ('G', 7)];
        let expected: Vec<_> = series
            .iter()
            .flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n:02}")))
            .collect();
        assert_eq!(numbers, expected);
    }
}
