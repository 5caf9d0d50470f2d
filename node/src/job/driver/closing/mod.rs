//! How a job ends: well, with both signatures under its receipt; or not, with a reason for both sides.
//!
//! For: the last words of a session, and letting the workers go.
//! In and out: what the machines and the link say in; `Sign`, `Bye`, `Refuse` and `Failure` out.
//! Invariants: a signature is made only over a whole job; after `leave` no op of the job is in flight; every wait has a time; a receiver
//! that has signed says nothing more before it is answered, so that the answer outlives the process that gave it.
//! Absent on purpose: which last word may come when (`proto::session::closing`), deciding that all is done (proto), the receipt's form (proto,
//! job::receipt).

pub(super) mod former; // a former receipt that says the same, before the receiver signs

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use engine::job::{Cmd, Event as WorkerEvent};
use engine::machine::Stop;
use proto::error::{Breach, Refusal};
use proto::receipt::agreement::{Named, Next};
use proto::receipt::{Former, Signer, signed_message};
use proto::session::closing::{HOLD, Signature};
use proto::wire::control::Frame;

use super::{End, JobDriver, read_clock};
use crate::identity::keys;
use crate::identity::ticket::Ending;
use crate::job::receipt::former::Found;
use text::exit::{Exit, Failure};
use text::refused;

impl JobDriver<'_, '_> {
    /// The end of a job: the receiver signs first, the sender answers, both say farewell.
    pub(super) fn close(&mut self) -> Result<(), Failure> {
        if !self.closing.next_signature(self.end.is_done() && !self.is_forecasting()) {
            return Ok(());
        }
        self.take_gone();
        if let Some(names) = &self.out_of_set {
            // What the others hold is whole and stays; nobody signs for the rest.
            let detail = names.clone();
            self.pulse();
            self.refuse(Refusal::VolumeOut.code(), &detail);
            self.closing.on_given_up();
            return Ok(());
        }
        let open = self.end.record().files_open();
        if open > 0 {
            return Err(self.bug(&format!("{open} files are neither there nor did they fail")));
        }
        let Some(former) = self.former_before_sign()? else { return Ok(()) };
        let (body, signature) = self.sign(former)?;
        self.say_nics();
        self.pulse();
        self.job.ending.iter().for_each(Ending::begin);
        self.say(&Frame::Sign { body, signature: Box::new(signature) });
        self.closing.on_signed(body, signature);
        self.order.on_signed();
        Ok(())
    }

    /// What the interfaces here counted, and which owners go by number, for the peer's report.
    fn say_nics(&mut self) {
        let counts = self.nics.since();
        self.say(&Frame::NicCounts(counts));
        let unnamed = self.end.record().unnamed;
        self.say(&Frame::Unnamed(unnamed));
    }

    /// `former`: the receipt refers to it.
    fn sign(&mut self, former: Option<Former>) -> Result<([u8; 32], [u8; 64]), Failure> {
        let tally = self.end.record().tally;
        let (files, bytes) = (tally.files_done, tally.bytes_done);
        let body = match &mut self.receipt {
            Some(receipt) => match receipt.end_with(former.as_ref(), files, bytes) {
                Ok(body) => body,
                Err(error) => {
                    // The data is whole: the job ends well, and says what is missing.
                    self.no_receipt(&format!("it cannot be written: {error}"));
                    [0; 32]
                }
            },
            None => [0; 32],
        };
        Ok((body, self.job.identity.sign(&signed_message(&body))))
    }

    /// There will be no receipt: said now, and at the end. The first reason stays.
    pub(super) fn no_receipt(&mut self, why: &str) {
        let place =
            self.receipt.take().map_or_else(String::new, |receipt| format!(" at {}", receipt.place().display()));
        let why = format!("no receipt can be kept{place}: {why}");
        if self.receipt_end.is_none() {
            self.said.push(why.clone());
            self.receipt_end = Some(Err(why));
        }
    }

    /// The peer has signed; it is answered at once, or when this end's workers have reported all.
    pub(super) fn hold_sign(&mut self, body: [u8; 32], signature: Box<[u8]>) -> Result<(), Failure> {
        let held = self.closing.on_signature(self.now, Signature { body, signature });
        held.map_err(|breach| self.breach(breach))?;
        self.take_held_sign(HOLD)
    }

    /// Takes the signature that was held, once the workers have told all, or after `at_most`.
    pub(super) fn take_held_sign(&mut self, at_most: Duration) -> Result<(), Failure> {
        let has_untold = self.is_forecasting() || matches!(&self.end, End::Send(end) if end.has_unreported());
        match self.closing.next_answer(self.now, has_untold, at_most) {
            Some(Signature { body, signature }) => self.on_sign(body, &signature),
            None => Ok(()),
        }
    }

    fn on_sign(&mut self, body: [u8; 32], signature: &[u8]) -> Result<(), Failure> {
        let sends = matches!(self.end, End::Send(_));
        self.take_lines();
        let signed = self.closing.begin_answer(self.end.is_done()).map_err(|breach| self.breach(breach))?;
        let (own_body, own_signature) = match signed {
            Some(signed) => signed,
            None => {
                let former = self.former_of(&body);
                self.sign(former)?
            }
        };
        let peer_key = self.job.peer_key;
        if !keys::verify(&peer_key, &signed_message(&body), signature) {
            return Err(self.breach(Breach::SignatureInvalid));
        }
        if body != own_body && body != [0; 32] && own_body != [0; 32] {
            return Err(self.breach(Breach::DigestMismatch));
        }
        if sends {
            self.say_nics();
            self.pulse();
            self.job.ending.iter().for_each(Ending::begin);
            self.say(&Frame::Sign { body: own_body, signature: Box::new(own_signature) });
        }
        self.say(&Frame::Bye);
        self.closing.on_answered();
        if let Some(receipt) = self.receipt.take().filter(|_| body == own_body) {
            let mut peers = [0; 64];
            peers.copy_from_slice(signature);
            let own =
                (if sends { Signer::Sender } else { Signer::Receiver }, self.job.identity.public(), own_signature);
            let other = (if sends { Signer::Receiver } else { Signer::Sender }, peer_key, peers);
            let signed = if sends { [own, other] } else { [other, own] };
            match receipt.sign(&own_body, &signed, self.job.formers.as_ref()) {
                Ok(path) => self.receipt_end = Some(Ok(path)),
                Err(error) => self.no_receipt(&format!("it cannot be written: {error}")),
            }
        } else if self.job.receipt.is_some() && body == [0; 32] {
            self.no_receipt(
                "the other end could not keep its own, and one that both have not signed is none; its log says why",
            );
        }
        Ok(())
    }

    /// Lets the workers go, and waits for it: after this no op of the job is in flight, and other jobs may have what this one had begun. Where a disk
    /// does not answer for seconds, the job's files stay its own until it does.
    pub(super) fn leave(&mut self, whole: bool) {
        if whole {
            let _ = self.job.link.flush_blocking(Duration::from_secs(2));
            self.job.link.close();
            let _ = self.job.link.flush_blocking(Duration::from_secs(1));
        }
        let count = self.job.workers.count();
        for worker in 0..count {
            self.job.workers.send(worker, Cmd::Close { job: self.job.no });
        }
        let mut closed = self.workers_lost;
        let until = read_clock() + Duration::from_secs(5);
        while closed < count && read_clock() < until {
            if let Ok(WorkerEvent::Closed { .. } | WorkerEvent::Panicked { .. }) =
                self.events.recv_timeout(Duration::from_millis(100))
            {
                closed += 1;
            }
        }
        // Without their tasks the committers and the comparer end, after what they are at.
        (self.tasks, self.looks) = (None, None);
        if let End::Recv(end) = &mut self.end {
            while !self.panics.are_over() && read_clock() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            if closed == count && self.workers_lost == 0 && self.panics.are_over() {
                end.leave();
            }
        }
    }

    /// Receiver: all is done. May it sign, and with which former receipt? `None`: not yet.
    fn former_before_sign(&mut self) -> Result<Option<Option<Former>>, Failure> {
        let may = self.job.formers.as_ref().is_some_and(|it| it.memo.is_some()) && self.receipt.is_some();
        loop {
            match self.former.agreement.next_before_sign(self.now, may) {
                Next::Sign(former) => {
                    self.former.stop.store(true, Ordering::Relaxed);
                    return Ok(Some(former));
                }
                Next::Wait => return Ok(None),
                next => self.do_next(next)?,
            }
            if self.former.found.is_some() {
                return Ok(None); // the thread's end wakes the loop
            }
            // There was nothing to look for: no reason to wait for the next tick.
        }
    }

    /// The peer asks, or answers.
    pub(super) fn on_former(&mut self, named: Named) -> Result<(), Failure> {
        let next = self.former.agreement.on_peer(self.now, named).map_err(|breach| self.breach(breach))?;
        next.map_or(Ok(()), |next| self.do_next(next))
    }

    /// What the thread found.
    pub(super) fn take_found(&mut self) -> Result<(), Failure> {
        let Some(found) = self.former.found.as_ref().and_then(|from| from.try_recv().ok()) else { return Ok(()) };
        self.former.found = None;
        self.on_found(found)
    }

    fn on_found(&mut self, found: Option<Found>) -> Result<(), Failure> {
        let next = self.former.agreement.on_found(self.now, found.as_ref().map(|it| it.former));
        self.former.held = found;
        next.filter(|_| self.is_open()).map_or(Ok(()), |next| self.do_next(next))
    }

    fn do_next(&mut self, next: Next) -> Result<(), Failure> {
        match next {
            Next::Look(named) if self.begin_look(named) => Ok(()),
            Next::Look(_) => self.on_found(None),
            Next::Say((job, body)) => {
                self.say(&Frame::Former { job, body });
                Ok(())
            }
            Next::Wait | Next::Sign(_) => Ok(()),
        }
    }

    /// False: there is nothing to look for.
    fn begin_look(&mut self, named: Option<Named>) -> bool {
        self.take_lines();
        let tally = self.end.record().tally;
        let Some(formers) = self.job.formers.clone() else { return false };
        let list = self.receipt.as_mut().map(|receipt| receipt.list(tally.files_done, tally.bytes_done));
        let Some(Ok(Some(list))) = list else { return false };
        let (to, from) = sync_channel(1);
        let (stop, wake) = (self.former.stop.clone(), self.job.wake.clone());
        let begun = self.panics.spawn("former receipt", move || {
            // Nobody may be there to hear it.
            let _ = to.send(formers.find(&list, named, &stop));
            wake.signal();
        });
        self.former.found = Some(from);
        begun.is_ok()
    }

    /// Takes the receipt lines that the machine has, so that all that was resolved is in it.
    pub(super) fn take_lines(&mut self) {
        let lines = std::mem::take(&mut self.end.record().lines);
        let wrote = self.receipt.as_mut().filter(|_| !lines.is_empty()).map_or(Ok(()), |receipt| receipt.lines(&lines));
        if let Err(error) = wrote {
            self.no_receipt(&format!("it cannot be written: {error}"));
        }
    }

    /// Sender: the former receipt, if what the receiver signed refers to it.
    fn former_of(&mut self, body: &[u8; 32]) -> Option<Former> {
        self.former.stop.store(true, Ordering::Relaxed);
        let (tally, receipt) = (self.end.record().tally, self.receipt.as_ref()?);
        self.former.agreed().filter(|it| receipt.referring(it, tally.files_done, tally.bytes_done) == *body)
    }

    pub(super) fn lost(&mut self, cause: &str) -> Failure {
        Exit::Lost.fail(format!("keep the session with {}", self.peer_name()), cause)
    }

    pub(super) fn breach(&mut self, breach: Breach) -> Failure {
        self.refuse(breach.code(), breach.what());
        Exit::Breach.fail(format!("go on with the peer at {}", self.peer_name()), breach.what())
    }

    pub(super) fn stopped(&mut self, stop: Stop) -> Failure {
        match stop {
            Stop::Breach(breach) => self.breach(breach),
            Stop::Refused { code, detail } => refused::failure(code, "go on with the job", detail),
            Stop::Fault { step, errno } => {
                let error = io::Error::from_raw_os_error(errno);
                self.refuse(Refusal::Internal.code(), step);
                Exit::of_io(&error).fail(step, error)
            }
        }
    }

    /// A mistake of ours: the peer is told that it is one, if it can be told at all.
    pub(super) fn bug(&mut self, why: &str) -> Failure {
        // The link is as the panic left it: another panic is one too many.
        let _ = catch_unwind(AssertUnwindSafe(|| self.refuse(Refusal::Internal.code(), why)));
        Exit::Bug.fail(format!("go on with the peer at {}", self.peer_name()), why)
    }

    /// The peer is told why, if it still listens.
    pub(super) fn refuse(&mut self, code: u16, detail: &str) {
        self.say(&Frame::Refuse { code, detail: detail.to_owned() });
        let _ = self.job.link.flush_blocking(Duration::from_millis(500));
        // What the peer still sends must not make the kernel take the reason from its hands.
        self.job.link.linger(Duration::from_millis(500));
    }
}

/// What a code of the wire says.
pub(super) fn told(code: u16) -> String {
    match (Breach::from_code(code), Refusal::from_code(code)) {
        (Some(breach), _) => breach.what().to_owned(),
        (_, Some(refusal)) => refusal.what().to_owned(),
        _ => format!("code {code}"),
    }
}
