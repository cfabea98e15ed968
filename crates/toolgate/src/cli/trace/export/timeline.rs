//! Where the time went: on the model, on tools, on waiting for a person.

use std::fmt::Write as _;

use toolgate_core::message::{Body, Event, Message, ModelMessage};

use super::super::told::duration;

/// A pause in which nothing happened is drawn no longer than this; milliseconds. A night between two runs would hide both.
const LONGEST_PAUSE: i64 = 2_000;

/// How wide the drawing is, in units of its own.
const WIDTH: f64 = 1_000.0;

/// What time can be spent on; each has a lane.
const LANES: [(&str, &str); 3] = [("model", "model"), ("tool", "tools"), ("person", "waiting for a person")];

/// A stretch of time, and the record at which it began.
struct Span {
    lane: usize,
    from: i64,
    to: i64,
    record: usize,
}

/// Collects the stretches.
#[derive(Default)]
pub(super) struct Timeline {
    spans: Vec<Span>,
    /// What has begun and not ended: lane, id, time, record.
    open: Vec<(usize, String, i64, usize)>,
}

impl Timeline {
    /// Takes a record in.
    pub(super) fn take(&mut self, message: &Message, record: usize) {
        let Some(now) = milliseconds(&message.timestamp) else { return };
        match &message.body {
            Body::Event(Event::RequestBegin(_)) => self.begin(0, "", now, record),
            Body::Event(Event::RequestEnd(_)) => self.end(0, "", now),
            Body::Event(Event::CallStarted(started)) => self.begin(1, &started.tool_call_id, now, record),
            Body::Model(ModelMessage::ToolCallOutput(output)) => self.end(1, &output.tool_call_id, now),
            Body::Event(Event::ApprovalRequest(asked)) => self.begin(2, &asked.tool_call_id, now, record),
            Body::Event(Event::ApprovalDecision(made)) => self.end(2, &made.tool_call_id, now),
            _ => {}
        }
    }

    fn begin(&mut self, lane: usize, id: &str, now: i64, record: usize) {
        self.open.push((lane, id.to_owned(), now, record));
    }

    fn end(&mut self, lane: usize, id: &str, now: i64) {
        if let Some(place) = self.open.iter().rposition(|(own, name, ..)| *own == lane && name == id) {
            let (lane, _, from, record) = self.open.remove(place);
            self.spans.push(Span { lane, from, to: now.max(from), record });
        }
    }

    /// The drawing and its legend.
    pub(super) fn drawn(mut self) -> String {
        self.spans.sort_by_key(|span| span.from);
        let mut out = String::from("<ul class=\"lanes\">");
        for (lane, (class, name)) in LANES.iter().enumerate() {
            let own = self.spans.iter().filter(|span| span.lane == lane);
            let total: i64 = own.map(|span| span.to - span.from).sum();
            let _ = write!(out, "<li class=\"{class}\">{name}: {}</li>", duration(total.unsigned_abs()));
        }
        out.push_str("</ul>");
        let axis = Axis::of(&self.spans);
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} 60\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Where the time went\">"
        );
        for span in &self.spans {
            let (from, to) = (axis.place(span.from), axis.place(span.to));
            let (class, name) = LANES[span.lane];
            let length = duration((span.to - span.from).unsigned_abs());
            let _ = write!(
                out,
                "<a href=\"#r{}\"><rect class=\"{class}\" x=\"{from:.2}\" y=\"{}\" width=\"{:.2}\" height=\"16\">\
                 <title>{name}: {length}</title></rect></a>",
                span.record,
                2 + 20 * span.lane,
                (to - from).max(1.0)
            );
        }
        out.push_str("</svg>");
        out
    }
}

/// Time without its long pauses, laid over the width.
struct Axis {
    /// Where a stretch without a long pause begins, and how much time was left out before it.
    cuts: Vec<(i64, i64)>,
    start: i64,
    length: i64,
}

impl Axis {
    fn of(spans: &[Span]) -> Self {
        let start = spans.first().map_or(0, |span| span.from);
        let (mut end, mut left_out, mut cuts) = (start, 0, vec![(start, 0)]);
        for span in spans {
            if span.from - end > LONGEST_PAUSE {
                left_out += span.from - end - LONGEST_PAUSE;
                cuts.push((span.from, left_out));
            }
            end = end.max(span.to);
        }
        Self { cuts, start, length: (end - start - left_out).max(1) }
    }

    fn place(&self, time: i64) -> f64 {
        let left_out = self.cuts.iter().rev().find(|(from, _)| *from <= time).map_or(0, |(_, left_out)| *left_out);
        (time - self.start - left_out) as f64 / self.length as f64 * WIDTH
    }
}

/// `2026-01-31T12:34:56.789Z` as milliseconds since 1970.
fn milliseconds(timestamp: &str) -> Option<i64> {
    let number = |from: usize, to: usize| timestamp.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    // Days of the civil calendar, with years that begin in March so that the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = number(11, 13)? * 3_600 + number(14, 16)? * 60 + number(17, 19)?;
    Some((days * 86_400 + seconds) * 1_000 + number(20, 23).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_long_pauses_are_left_out() {
        assert_eq!(milliseconds("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(milliseconds("2024-02-29T12:00:00.250Z"), Some(1_709_208_000_250));
        assert_eq!(milliseconds("nonsense"), None);
        let span = |from, to| Span { lane: 0, from, to, record: 1 };
        let axis = Axis::of(&[span(0, 1_000), span(1_001_000, 1_002_000)]);
        assert_eq!((axis.length, axis.place(0), axis.place(1_002_000)), (4_000, 0.0, WIDTH));
        assert_eq!(axis.place(1_001_000), WIDTH * 0.75);
    }
}
