//! The receiver's feedback, on its way into the flow.
//!
//! For: the sending half, which hears what came before it says what goes.
//! In and out: bursts in; facts of the flow and breaches out.
//! Invariants: a forged or foreign packet changes a counter and nothing else.
//! Absent on purpose: what feedback means (`proto::flow`), when it is sent (`recv`).

use proto::books::Stage;
use proto::packet::{Feedback, Kind, expand};

use super::send::Sending;
use super::wire::{Wire, head_of};
use crate::job::RailEnd;
use crate::platform::Platform;
use crate::worker::cx::Cx;

pub(super) fn receive_feedback<P: Platform>(wire: &mut Wire<P>, half: &mut Sending<P>, cx: &mut Cx<'_, P>) {
    let mut go = wire.begin_receiving(cx);
    while let Some(arrived) = wire.next_burst(cx, &mut go) {
        let mut inbox = std::mem::take(&mut wire.inbox);
        for range in arrived.packets() {
            take_feedback(wire, half, cx, &mut inbox[range]);
        }
        wire.inbox = inbox;
    }
    wire.end_receiving(cx, &go, 0);
}

fn take_feedback<P: Platform>(wire: &mut Wire<P>, half: &mut Sending<P>, cx: &mut Cx<'_, P>, packet: &mut [u8]) {
    let Some(head) = head_of(packet, wire.tag).filter(|head| head.kind == Kind::Feedback) else {
        wire.counts.foreign += 1;
        return;
    };
    let number = expand(head.low, half.next_feedback);
    let Some(body) = wire.packer.open_small(Kind::Feedback, number, packet) else {
        wire.counts.forged += 1;
        return;
    };
    cx.watch.lap(Stage::Seal);
    let now = cx.platform.now_ns();
    half.next_feedback = half.next_feedback.max(number + 1);
    wire.heard_ns = now;
    let heard = Feedback::decode(body).and_then(|feedback| half.flow.on_feedback(now, &feedback));
    if let Err(breach) = heard {
        wire.base.break_off(cx.platform, RailEnd::Breach(breach));
    }
}
