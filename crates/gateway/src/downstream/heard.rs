//! What a legacy client was told about changed lists, and what of it certainly arrived. Between the two lies
//! what was written on a stream: if the stream breaks, nobody knows whether the client read it, and it is
//! told again. Hearing of a change twice is harmless; never hearing of it is not.

use super::herald::Marks;

/// What one client was told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    /// It certainly knows of these.
    sure: Marks,
    /// These were written on a stream that still stands.
    said: Marks,
}

impl Heard {
    /// The client knows the lists as they were at these marks.
    pub(crate) fn of(marks: Marks) -> Self {
        Self { sure: marks, said: marks }
    }

    /// The notifications that lead to `now`; from here on they count as said.
    pub(crate) fn tell(&mut self, now: Marks) -> impl Iterator<Item = &'static str> + use<> {
        let before = std::mem::replace(&mut self.said, now);
        before.news(now)
    }

    /// What was said up to these marks has arrived: the stream that it was written on stood for long
    /// enough, or the client itself names it.
    pub(crate) fn arrived(&mut self, marks: Marks) {
        let newer =
            |sure: u64, arrived: u64| if sure == Marks::UNKNOWN { arrived } else { sure.max(arrived) };
        self.sure = Marks {
            tools: newer(self.sure.tools, marks.tools),
            resources: newer(self.sure.resources, marks.resources),
            prompts: newer(self.sure.prompts, marks.prompts),
        };
    }

    /// A stream broke, or a new one begins: what is not sure has to be said again.
    pub(crate) fn take_back(&mut self) {
        self.said = self.sure;
    }

    /// The client asked for a list while these marks stood, so it has seen it as it is.
    pub(crate) fn listed(&mut self, method: &str, now: Marks) {
        let seen = |heard: &mut Marks| match method {
            "tools/list" => heard.tools = now.tools,
            "resources/list" | "resources/templates/list" => heard.resources = now.resources,
            "prompts/list" => heard.prompts = now.prompts,
            _ => {}
        };
        seen(&mut self.sure);
        seen(&mut self.said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: &str = "notifications/tools/list_changed";

    fn tools(tools: u64) -> Marks {
        Marks { tools, ..Marks::default() }
    }

    fn tell(heard: &mut Heard, now: Marks) -> Vec<&'static str> {
        heard.tell(now).collect()
    }

    #[test]
    fn what_was_written_on_a_stream_that_broke_is_told_again() {
        let mut heard = Heard::of(tools(1));
        assert_eq!(tell(&mut heard, tools(2)), [TOOLS]);
        assert!(tell(&mut heard, tools(2)).is_empty(), "once per change while the stream stands");
        heard.take_back();
        assert_eq!(tell(&mut heard, tools(2)), [TOOLS]);
        heard.arrived(tools(2));
        heard.take_back();
        assert!(tell(&mut heard, tools(2)).is_empty(), "it certainly knows");
    }

    #[test]
    fn a_client_that_has_listed_need_not_be_told_to() {
        let mut heard = Heard::of(Marks { tools: Marks::UNKNOWN, ..Marks::default() });
        heard.listed("prompts/list", tools(4));
        assert_eq!(tell(&mut heard, tools(4)), [TOOLS]);
        heard.listed("tools/list", tools(4));
        heard.take_back();
        assert!(tell(&mut heard, tools(4)).is_empty());
        assert_eq!(tell(&mut heard, tools(5)), [TOOLS]);
    }

    #[test]
    fn a_stream_that_lags_behind_does_not_undo_what_is_known() {
        let mut heard = Heard::of(tools(1));
        heard.listed("tools/list", tools(7));
        heard.arrived(tools(3));
        heard.take_back();
        assert!(tell(&mut heard, tools(7)).is_empty());
    }
}
