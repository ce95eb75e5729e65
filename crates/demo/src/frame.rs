//! How one message becomes bytes on a pipe or in an event stream, including the dishonest ways: half of it, drop
//! by drop, followed by the death of the connection or of the process.
//!
//! Produces [`Step`]s and performs none of them; the pipe writer and the HTTP body do.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

/// One thing to put on the wire.
#[derive(Debug, Clone)]
pub(crate) enum Frame {
    /// A notification or a request of ours.
    Message(Value),
    /// The answer that ends a request.
    Answer(Value, Delivery),
    /// Bytes that belong to no message.
    Junk(Bytes),
}

/// How much of an answer is written, and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) part: Part,
    pub(crate) then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// The first half, without the end of the frame.
    Half,
    /// The first half as a frame of its own, then the whole.
    HalfThenWhole,
    /// The whole in small pieces with this pause between them.
    Drip(Duration),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    GoOn,
    /// The stream ends in good order. A pipe has no such end short of closing.
    End,
    /// The connection is reset; a pipe closes.
    Reset,
    /// The process exits with this code. A server inside a test resets the connection instead.
    Die(i32),
}

impl Delivery {
    pub(crate) const WHOLE: Self = Self { part: Part::Whole, then: Then::GoOn };

    pub(crate) const fn new(part: Part, then: Then) -> Self {
        Self { part, then }
    }
}

/// What the writer does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Write(Bytes),
    Pause(Duration),
    End,
    Reset,
    Die(i32),
}

/// The two ways to tell messages apart in a row of bytes.
#[derive(Debug, Clone)]
pub(crate) enum Framing {
    /// One message a line.
    Lines,
    /// Server-sent events, with an id where the stream can be resumed.
    Events { id: Option<String> },
}

/// Enough pieces to be slow, few enough to end.
const DRIPS: usize = 16;

/// Lets the bytes before a reset leave this machine: a reset throws away what the peer has not read.
const BEFORE_RESET: Duration = Duration::from_millis(20);

pub(crate) fn steps(frame: &Frame, framing: &Framing) -> Vec<Step> {
    let (value, delivery) = match frame {
        Frame::Message(value) => (value, Delivery::WHOLE),
        Frame::Answer(value, delivery) => (value, *delivery),
        Frame::Junk(bytes) => return vec![Step::Write(bytes.clone())],
    };
    let text = value.to_string();
    let mut steps = match delivery.part {
        Part::Whole => vec![Step::Write(framing.frame(&text))],
        Part::Half => {
            let whole = framing.frame(&text);
            vec![Step::Write(whole.slice(..whole.len() / 2))]
        }
        Part::HalfThenWhole => {
            let half: String = text.chars().take(text.chars().count() / 2).collect();
            vec![Step::Write(framing.frame(&half)), Step::Write(framing.frame(&text))]
        }
        Part::Drip(pause) => {
            let whole = framing.frame(&text);
            let size = whole.len().div_ceil(DRIPS).max(1);
            let pieces = (0..whole.len()).step_by(size);
            pieces
                .flat_map(|at| {
                    let piece = whole.slice(at..whole.len().min(at + size));
                    [Step::Pause(pause), Step::Write(piece)]
                })
                .collect()
        }
        Part::Nothing => Vec::new(),
    };
    match delivery.then {
        Then::GoOn => {}
        Then::End => steps.push(Step::End),
        Then::Reset => steps.extend([Step::Pause(BEFORE_RESET), Step::Reset]),
        Then::Die(code) => steps.push(Step::Die(code)),
    }
    steps
}

impl Framing {
    fn frame(&self, text: &str) -> Bytes {
        match self {
            Self::Lines => Bytes::from(format!("{text}\n")),
            Self::Events { id: None } => Bytes::from(format!("event: message\ndata: {text}\n\n")),
            Self::Events { id: Some(id) } => {
                Bytes::from(format!("event: message\nid: {id}\ndata: {text}\n\n"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(steps: &[Step]) -> String {
        let bytes: Vec<u8> = steps
            .iter()
            .filter_map(|step| if let Step::Write(bytes) = step { Some(bytes.to_vec()) } else { None })
            .flatten()
            .collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_drip_adds_up_to_the_whole() {
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"text": "slowly but surely"}});
        let pause = Duration::from_millis(5);
        let drip = Frame::Answer(answer.clone(), Delivery::new(Part::Drip(pause), Then::GoOn));
        let steps = steps(&drip, &Framing::Lines);
        assert_eq!(written(&steps), format!("{answer}\n"));
        assert_eq!(steps.iter().filter(|step| **step == Step::Pause(pause)).count(), DRIPS);
    }

    #[test]
    fn half_a_line_has_no_end() {
        let half = Frame::Answer(json!({"id": 1}), Delivery::new(Part::Half, Then::Die(3)));
        let steps = steps(&half, &Framing::Lines);
        assert_eq!(written(&steps), "{\"id");
        assert_eq!(steps.last(), Some(&Step::Die(3)));
    }

    #[test]
    fn half_then_whole_are_two_lines_of_which_one_is_junk() {
        let frame = Frame::Answer(json!({"id": 1}), Delivery::new(Part::HalfThenWhole, Then::GoOn));
        assert_eq!(written(&steps(&frame, &Framing::Lines)), "{\"id\n{\"id\":1}\n");
    }
}
