//! Turns one message into the steps of writing it to a pipe or an event stream, including the faulty ways: half of it,
//! in small pieces, or followed by the end of the connection or of the process.
//!
//! Only produces [`Step`]s; the pipe writer and the HTTP body perform them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

/// A unit of output.
#[derive(Debug, Clone)]
pub(crate) enum Frame {
    /// A notification or a request of the server.
    Message(Value),
    /// The answer that ends a request.
    Answer(Value, Delivery),
    /// Bytes that belong to no message.
    Junk(Bytes),
}

/// The part of an answer that is written, and the step after it.
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
    /// The first half as a separate frame, then the whole.
    HalfThenWhole,
    /// The whole in small pieces with this pause between them.
    Drip(Duration),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Continue,
    /// The stream ends cleanly. A pipe closes.
    End,
    /// The connection is reset; a pipe closes.
    Reset,
    /// The process exits with this code. A server inside a test resets the connection instead.
    Die(i32),
}

impl Delivery {
    pub(crate) const WHOLE: Self = Self { part: Part::Whole, then: Then::Continue };

    pub(crate) const fn new(part: Part, then: Then) -> Self {
        Self { part, then }
    }
}

/// One step of the writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Write(Bytes),
    Pause(Duration),
    End,
    Reset,
    Die(i32),
}

/// Delimitation of messages in a byte stream.
#[derive(Debug, Clone)]
pub(crate) enum Framing {
    /// One message per line.
    Lines,
    /// Server-sent events, with an id if the stream can be resumed.
    Events { id: Option<String> },
}

/// Number of pieces: enough to be slow, few enough to end soon.
const DRIPS: usize = 16;

/// Time for the bytes before a reset to arrive, because a reset drops bytes that the peer has not read.
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
        Then::Continue => {}
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
    fn the_pieces_of_a_drip_are_the_whole_answer() {
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"text": "slowly but surely"}});
        let pause = Duration::from_millis(5);
        let drip = Frame::Answer(answer.clone(), Delivery::new(Part::Drip(pause), Then::Continue));
        let steps = steps(&drip, &Framing::Lines);
        assert_eq!(written(&steps), format!("{answer}\n"));
        assert_eq!(steps.iter().filter(|step| **step == Step::Pause(pause)).count(), DRIPS);
    }

    #[test]
    fn half_a_line_has_no_line_break() {
        let half = Frame::Answer(json!({"id": 1}), Delivery::new(Part::Half, Then::Die(3)));
        let steps = steps(&half, &Framing::Lines);
        assert_eq!(written(&steps), "{\"id");
        assert_eq!(steps.last(), Some(&Step::Die(3)));
    }

    #[test]
    fn half_then_whole_gives_two_lines_of_which_one_is_invalid() {
        let frame = Frame::Answer(json!({"id": 1}), Delivery::new(Part::HalfThenWhole, Then::Continue));
        assert_eq!(written(&steps(&frame, &Framing::Lines)), "{\"id\n{\"id\":1}\n");
    }
}
