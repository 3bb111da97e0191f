//! Bytes of the messages between a router and a worker.

use crate::WireError;
use crate::checks::{
    array, choice, column, finite, hashes_from_bytes, hashes_to_bytes, nanos, not_empty, required, sparse_column,
};
use crate::generated as wire;
use crate::generated::{from_worker, submit, to_worker};
use domain::plan::TokenLogprobs;
use domain::session::{Assignment, Failure, FromWorker, Holder, Migrate, Report, Submit, ToWorker, TokenRow};
use domain::{
    Adapter, BlockHash, BlockLink, Choice, End, Ender, Epoch, Finish, Grammar, Incarnation, RequestId, SamplingParams,
    SeqKey, Token, TraceContext, WorkerId,
};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;

mod hello;
mod phases;
#[cfg(test)]
mod tests;

/// Encodes a message to a worker. Durations saturate at about 584 years.
pub fn encode_to_worker(message: &ToWorker) -> Vec<u8> {
    let body = match message {
        ToWorker::Submit(submit) => to_worker::Body::Submit(submit_to_wire(submit)),
        ToWorker::Cancel { request, epoch, choice } => to_worker::Body::Cancel(wire::Cancel {
            request: request.0,
            epoch: epoch.0,
            choice: choice.map(|choice| choice.0.into()),
        }),
        ToWorker::Snapshot => to_worker::Body::Snapshot(wire::Snapshot {}),
        ToWorker::Hello(hello) => to_worker::Body::Hello(hello::router_to_wire(hello)),
        ToWorker::Proof(proof) => to_worker::Body::Proof(proof.to_vec()),
        ToWorker::Refused { why } => to_worker::Body::Refused(why.clone()),
        ToWorker::Heartbeat => to_worker::Body::Heartbeat(wire::Heartbeat {}),
        ToWorker::OperatorAsk { number, ask } => {
            to_worker::Body::OperatorAsk(wire::OperatorAsk { number: *number, ask: ask.clone() })
        }
        ToWorker::Peer(peer) => to_worker::Body::Peer(hello::peer_to_wire(peer)),
        ToWorker::PeerLeft { id, incarnation } => {
            to_worker::Body::PeerLeft(wire::PeerLeft { id: id.0, incarnation: incarnation.0 })
        }
        ToWorker::Migrate(migrate) => to_worker::Body::Migrate(wire::Migrate {
            request: migrate.request.0,
            epoch: migrate.epoch.0,
            to: migrate.to.0,
            next: migrate.next.0,
            known: migrate.known,
            lease_ns: nanos(migrate.lease),
        }),
    };
    wire::ToWorker { body: Some(body) }.encode_to_vec()
}

/// Decodes a message to a worker. Errors: [`WireError`], on the first field that is missing or invalid.
pub fn decode_to_worker(bytes: &[u8]) -> Result<ToWorker, WireError> {
    Ok(match required(wire::ToWorker::decode(bytes)?.body, "ToWorker.body")? {
        to_worker::Body::Submit(submit) => ToWorker::Submit(submit_from_wire(submit)?),
        to_worker::Body::Cancel(wire::Cancel { request, epoch, choice: only }) => ToWorker::Cancel {
            request: RequestId(request),
            epoch: Epoch(epoch),
            choice: only.map(|only| choice(only, "Cancel.choice")).transpose()?,
        },
        to_worker::Body::Snapshot(wire::Snapshot {}) => ToWorker::Snapshot,
        to_worker::Body::Hello(hello) => ToWorker::Hello(hello::router_from_wire(&hello)?),
        to_worker::Body::Proof(proof) => ToWorker::Proof(array(&proof, "ToWorker.proof")?),
        to_worker::Body::Refused(why) => ToWorker::Refused { why },
        to_worker::Body::Heartbeat(wire::Heartbeat {}) => ToWorker::Heartbeat,
        to_worker::Body::OperatorAsk(wire::OperatorAsk { number, ask }) => ToWorker::OperatorAsk { number, ask },
        to_worker::Body::Peer(peer) => ToWorker::Peer(hello::peer_from_wire(peer)?),
        to_worker::Body::PeerLeft(wire::PeerLeft { id, incarnation }) => {
            ToWorker::PeerLeft { id: WorkerId(id), incarnation: Incarnation(incarnation) }
        }
        to_worker::Body::Migrate(migrate) => ToWorker::Migrate(Migrate {
            request: RequestId(migrate.request),
            epoch: Epoch(migrate.epoch),
            to: WorkerId(migrate.to),
            next: Epoch(migrate.next),
            known: migrate.known,
            lease: Duration::from_nanos(migrate.lease_ns),
        }),
    })
}

/// Encodes a message from a worker.
pub fn encode_from_worker(message: &FromWorker) -> Vec<u8> {
    let body = match message {
        FromWorker::Tokens(rows) => from_worker::Body::Tokens(tokens_to_wire(rows)),
        FromWorker::Ended { key, tokens, end } => from_worker::Body::Ended(wire::Ended {
            request: key.request.0,
            epoch: key.epoch.0,
            choice: key.choice.0.into(),
            tokens: *tokens,
            end: Some(end_to_wire(end)),
        }),
        FromWorker::Failed { request, epoch, why, fault, detail } => from_worker::Body::Failed(wire::Failed {
            request: request.0,
            epoch: epoch.0,
            why: failure_to_wire(*why).into(),
            fault: fault.map(|peer| peer.0),
            detail: detail.clone(),
        }),
        FromWorker::Report(report) => from_worker::Body::Report(report_to_wire(report)),
        FromWorker::Challenge(challenge) => from_worker::Body::Challenge(hello::challenge_to_wire(challenge)),
        FromWorker::Hello(hello) => from_worker::Body::Hello(hello::worker_to_wire(hello)),
        FromWorker::Heartbeat => from_worker::Body::Heartbeat(wire::Heartbeat {}),
        FromWorker::Draining => from_worker::Body::Draining(wire::Draining {}),
        FromWorker::OperatorAnswer { number, answer } => {
            from_worker::Body::OperatorAnswer(wire::OperatorAnswer { number: *number, answer: answer.clone() })
        }
        FromWorker::Phases { request, epoch, phases, left_out } => {
            from_worker::Body::Phases(phases::to_wire(*request, *epoch, phases, *left_out))
        }
    };
    wire::FromWorker { body: Some(body) }.encode_to_vec()
}

/// Decodes a message from a worker. Errors: [`WireError`], on the first field that is missing or invalid.
pub fn decode_from_worker(bytes: &[u8]) -> Result<FromWorker, WireError> {
    Ok(match required(wire::FromWorker::decode(bytes)?.body, "FromWorker.body")? {
        from_worker::Body::Tokens(tokens) => FromWorker::Tokens(tokens_from_wire(tokens)?),
        from_worker::Body::Ended(ended) => FromWorker::Ended {
            key: SeqKey {
                request: RequestId(ended.request),
                epoch: Epoch(ended.epoch),
                choice: choice(ended.choice, "Ended.choice")?,
            },
            tokens: ended.tokens,
            end: end_from_wire(required(ended.end, "Ended.end")?)?,
        },
        from_worker::Body::Failed(failed) => FromWorker::Failed {
            request: RequestId(failed.request),
            epoch: Epoch(failed.epoch),
            why: failure_from_wire(failed.why)?,
            fault: failed.fault.map(WorkerId),
            detail: failed.detail,
        },
        from_worker::Body::Report(report) => FromWorker::Report(report_from_wire(report)?),
        from_worker::Body::Challenge(challenge) => FromWorker::Challenge(hello::challenge_from_wire(&challenge)?),
        from_worker::Body::Hello(hello) => FromWorker::Hello(Box::new(hello::worker_from_wire(hello)?)),
        from_worker::Body::Heartbeat(wire::Heartbeat {}) => FromWorker::Heartbeat,
        from_worker::Body::Draining(wire::Draining {}) => FromWorker::Draining,
        from_worker::Body::OperatorAnswer(wire::OperatorAnswer { number, answer }) => {
            FromWorker::OperatorAnswer { number, answer }
        }
        from_worker::Body::Phases(table) => phases::from_wire(table)?,
    })
}

fn submit_to_wire(submit: &Submit) -> wire::Submit {
    let part = match submit.assignment {
        Assignment::Prefill { decode } => submit::Part::PrefillFor(decode.0),
        Assignment::Decode { prefill } => submit::Part::DecodeFrom(prefill.0),
        Assignment::TakeOver { from } => submit::Part::TakeOverFrom(from.0),
        Assignment::Whole => submit::Part::Whole(wire::Whole {}),
    };
    let choices = submit
        .choices
        .iter()
        .map(|(choice, committed)| wire::Sequence { choice: choice.0.into(), committed: committed.to_vec() });
    wire::Submit {
        request: submit.request.0,
        epoch: submit.epoch.0,
        part: Some(part),
        choices: choices.collect(),
        prompt: submit.prompt.to_vec(),
        params: Some(sampling_to_wire(&submit.params)),
        seed: submit.seed,
        deadline_ns: nanos(submit.deadline),
        lease_ns: nanos(submit.lease),
        tenant: submit.tenant.clone(),
        adapter: submit.adapter.as_ref().map_or("", Adapter::name).to_owned(),
        holder: submit.holder.map(|Holder { worker, incarnation, tokens }| wire::Holder {
            worker: worker.0,
            incarnation: incarnation.0,
            tokens,
        }),
        trace: submit.trace.map(|TraceContext { trace, span }| wire::Trace {
            high: (trace >> 64) as u64,
            low: trace as u64,
            span,
        }),
        timed: submit.timed,
    }
}

fn submit_from_wire(submit: wire::Submit) -> Result<Submit, WireError> {
    not_empty(&submit.choices, "Submit.choices")?;
    not_empty(&submit.prompt, "Submit.prompt")?;
    let assignment = match required(submit.part, "Submit.part")? {
        submit::Part::PrefillFor(decode) => Assignment::Prefill { decode: WorkerId(decode) },
        submit::Part::DecodeFrom(prefill) => Assignment::Decode { prefill: WorkerId(prefill) },
        submit::Part::TakeOverFrom(from) => Assignment::TakeOver { from: WorkerId(from) },
        submit::Part::Whole(wire::Whole {}) => Assignment::Whole,
    };
    let sequence = |sequence: wire::Sequence| {
        Ok((choice(sequence.choice, "Sequence.choice")?, Arc::<[Token]>::from(sequence.committed)))
    };
    Ok(Submit {
        request: RequestId(submit.request),
        epoch: Epoch(submit.epoch),
        assignment,
        choices: submit.choices.into_iter().map(sequence).collect::<Result<_, WireError>>()?,
        prompt: submit.prompt.into(),
        params: Arc::new(sampling_from_wire(required(submit.params, "Submit.params")?)?),
        seed: submit.seed,
        deadline: Duration::from_nanos(submit.deadline_ns),
        lease: Duration::from_nanos(submit.lease_ns),
        tenant: submit.tenant,
        adapter: Adapter::named(&submit.adapter),
        holder: submit.holder.map(|wire::Holder { worker, incarnation, tokens }| Holder {
            worker: WorkerId(worker),
            incarnation: Incarnation(incarnation),
            tokens,
        }),
        trace: submit.trace.map(|wire::Trace { high, low, span }| TraceContext {
            trace: u128::from(high) << 64 | u128::from(low),
            span,
        }),
        timed: submit.timed,
    })
}

fn sampling_to_wire(params: &SamplingParams) -> wire::Sampling {
    wire::Sampling {
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: params.top_k,
        min_p: params.min_p,
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        repetition_penalty: params.repetition_penalty,
        bias_token: params.logit_bias.iter().map(|(token, _)| *token).collect(),
        bias: params.logit_bias.iter().map(|(_, bias)| *bias).collect(),
        logprobs: params.logprobs,
        stop_tokens: params.stop_tokens.clone(),
        min_tokens: params.min_tokens,
        max_tokens: params.max_tokens,
        grammar: params.grammar.as_ref().map(|grammar| grammar.text().to_owned()),
    }
}

fn sampling_from_wire(params: wire::Sampling) -> Result<SamplingParams, WireError> {
    column(&params.bias, params.bias_token.len(), "Sampling.bias")?;
    let biases = params.bias_token.into_iter().zip(params.bias);
    if params.max_tokens == 0 {
        return Err(WireError::invalid("Sampling.max_tokens", "it is zero"));
    }
    Ok(SamplingParams {
        temperature: finite(params.temperature, "Sampling.temperature")?,
        top_p: finite(params.top_p, "Sampling.top_p")?,
        top_k: params.top_k,
        min_p: finite(params.min_p, "Sampling.min_p")?,
        presence_penalty: finite(params.presence_penalty, "Sampling.presence_penalty")?,
        frequency_penalty: finite(params.frequency_penalty, "Sampling.frequency_penalty")?,
        repetition_penalty: finite(params.repetition_penalty, "Sampling.repetition_penalty")?,
        logit_bias: biases
            .map(|(token, bias)| Ok((token, finite(bias, "Sampling.bias")?)))
            .collect::<Result<_, WireError>>()?,
        logprobs: params.logprobs,
        stop_tokens: params.stop_tokens,
        min_tokens: params.min_tokens,
        max_tokens: params.max_tokens,
        grammar: params.grammar.map(grammar_from_wire).transpose()?,
    })
}

fn grammar_from_wire(text: String) -> Result<Grammar, WireError> {
    Grammar::new(text).map_err(|_| WireError::invalid("Sampling.grammar", "it is too long"))
}

fn tokens_to_wire(rows: &[TokenRow]) -> wire::Tokens {
    let logprobs = rows.iter().enumerate().filter_map(|(row, token)| {
        token.logprobs.as_ref().map(|logprobs| wire::RowLogprobs {
            row: row as u32,
            logprob: logprobs.logprob,
            top_token: logprobs.top.iter().map(|(token, _)| *token).collect(),
            top_logprob: logprobs.top.iter().map(|(_, logprob)| *logprob).collect(),
        })
    });
    wire::Tokens {
        request: rows.iter().map(|row| row.key.request.0).collect(),
        epoch: rows.iter().map(|row| row.key.epoch.0).collect(),
        choice: sparse_column(rows.iter().map(|row| row.key.choice.0.into()).collect()),
        index: rows.iter().map(|row| row.index).collect(),
        token: rows.iter().map(|row| row.token).collect(),
        cached_tokens: sparse_column(rows.iter().map(|row| row.cached_tokens).collect()),
        logprobs: logprobs.collect(),
    }
}

fn tokens_from_wire(frame: wire::Tokens) -> Result<Vec<TokenRow>, WireError> {
    let rows = frame.request.len();
    column(&frame.epoch, rows, "Tokens.epoch")?;
    column(&frame.index, rows, "Tokens.index")?;
    column(&frame.token, rows, "Tokens.token")?;
    if !frame.choice.is_empty() {
        column(&frame.choice, rows, "Tokens.choice")?;
    }
    if !frame.cached_tokens.is_empty() {
        column(&frame.cached_tokens, rows, "Tokens.cached_tokens")?;
    }
    let mut tokens = Vec::with_capacity(rows);
    for row in 0..rows {
        tokens.push(TokenRow {
            key: SeqKey {
                request: RequestId(frame.request[row]),
                epoch: Epoch(frame.epoch[row]),
                choice: frame.choice.get(row).map_or(Ok(Choice(0)), |&c| choice(c, "Tokens.choice"))?,
            },
            index: frame.index[row],
            token: frame.token[row],
            logprobs: None,
            cached_tokens: frame.cached_tokens.get(row).copied().unwrap_or(0),
        });
    }
    let mut row_min = 0;
    for logprobs in frame.logprobs {
        let row = logprobs.row as usize;
        if row < row_min || row >= rows {
            return Err(WireError::invalid("RowLogprobs.row", format!("{row} is not in {row_min}..{rows}")));
        }
        row_min = row + 1;
        column(&logprobs.top_logprob, logprobs.top_token.len(), "RowLogprobs.top_logprob")?;
        let top = logprobs.top_token.into_iter().zip(logprobs.top_logprob).collect();
        tokens[row].logprobs = Some(TokenLogprobs { logprob: logprobs.logprob, top });
    }
    Ok(tokens)
}

fn report_to_wire(report: &Report) -> wire::Report {
    wire::Report {
        incarnation: report.incarnation.0,
        number: report.number,
        snapshot: report.snapshot,
        role: report.role.map_or(wire::Role::Unspecified, hello::role_to_wire).into(),
        draining: report.draining,
        submits: report.submits,
        waiting: report.waiting,
        waiting_tokens: report.waiting_tokens,
        running: report.running,
        running_max: report.running_max,
        open: report.open,
        blocks_wanted: report.blocks_wanted,
        blocks_available: report.blocks_available,
        blocks_total: report.blocks_total,
        adapters: report.adapters.iter().map(|adapter| adapter.name().to_owned()).collect(),
        prefill_tokens_per_s: report.prefill_tokens_per_s,
        decode_step_s: report.decode_step_s,
        fetch_bytes_per_s: report.fetch_bytes_per_s,
        host_tokens_per_s: report.host_tokens_per_s,
        disk_tokens_per_s: report.disk_tokens_per_s,
        added: chains_to_wire(&report.added),
        host: chains_to_wire(&report.host),
        disk: chains_to_wire(&report.disk),
        removed: hashes_to_bytes(&report.removed),
    }
}

fn report_from_wire(report: wire::Report) -> Result<Report, WireError> {
    Ok(Report {
        incarnation: Incarnation(report.incarnation),
        number: report.number,
        snapshot: report.snapshot,
        role: hello::role_from_wire(report.role, "Report.role")?,
        draining: report.draining,
        submits: report.submits,
        waiting: report.waiting,
        waiting_tokens: report.waiting_tokens,
        running: report.running,
        running_max: report.running_max,
        open: report.open,
        blocks_wanted: report.blocks_wanted,
        blocks_available: report.blocks_available,
        blocks_total: report.blocks_total,
        adapters: report.adapters.iter().filter_map(|name| Adapter::named(name)).collect(),
        prefill_tokens_per_s: finite(report.prefill_tokens_per_s, "Report.prefill_tokens_per_s")?,
        decode_step_s: finite(report.decode_step_s, "Report.decode_step_s")?,
        fetch_bytes_per_s: finite(report.fetch_bytes_per_s, "Report.fetch_bytes_per_s")?,
        host_tokens_per_s: finite(report.host_tokens_per_s, "Report.host_tokens_per_s")?,
        disk_tokens_per_s: finite(report.disk_tokens_per_s, "Report.disk_tokens_per_s")?,
        added: chains_from_wire(report.added, "Report.added")?,
        host: chains_from_wire(report.host, "Report.host")?,
        disk: chains_from_wire(report.disk, "Report.disk")?,
        removed: hashes_from_bytes(&report.removed, "Report.removed")?,
    })
}

/// Writes a chain for each run of blocks of which each continues the one before it.
fn chains_to_wire(links: &[BlockLink]) -> Vec<wire::Chain> {
    let runs = links.chunk_by(|before, link| link.parent == Some(before.hash));
    runs.map(|run| wire::Chain {
        parent: run[0].parent.map_or_else(Vec::new, |parent| parent.0.to_vec()),
        blocks: run.iter().flat_map(|link| link.hash.0).collect(),
    })
    .collect()
}

fn chains_from_wire(chains: Vec<wire::Chain>, field: &'static str) -> Result<Vec<BlockLink>, WireError> {
    let mut links = Vec::new();
    for wire::Chain { parent, blocks } in chains {
        let parent = if parent.is_empty() { None } else { Some(BlockHash(array(&parent, field)?)) };
        let blocks = hashes_from_bytes(&blocks, field)?;
        not_empty(&blocks, field)?;
        links.extend(BlockLink::run(parent, &blocks));
    }
    Ok(links)
}

fn end_to_wire(end: &End) -> wire::End {
    let by = match end.by {
        Ender::Done => wire::Ender::Done,
        Ender::Client => wire::Ender::Client,
        Ender::Limit => wire::Ender::Limit,
        Ender::Worker => wire::Ender::Worker,
        Ender::Us => wire::Ender::Us,
    };
    let finish = match end.finish {
        Finish::Stop => wire::Finish::Stop,
        Finish::Length => wire::Finish::Length,
        Finish::Error => wire::Finish::Error,
    };
    wire::End { by: by.into(), finish: finish.into(), detail: end.detail.clone() }
}

fn end_from_wire(end: wire::End) -> Result<End, WireError> {
    let by = match wire::Ender::try_from(end.by) {
        Ok(wire::Ender::Done) => Ender::Done,
        Ok(wire::Ender::Client) => Ender::Client,
        Ok(wire::Ender::Limit) => Ender::Limit,
        Ok(wire::Ender::Worker) => Ender::Worker,
        Ok(wire::Ender::Us) => Ender::Us,
        Ok(wire::Ender::Unspecified) => return Err(WireError::Missing { field: "End.by" }),
        Err(unknown) => return Err(WireError::invalid("End.by", unknown.to_string())),
    };
    let finish = match wire::Finish::try_from(end.finish) {
        Ok(wire::Finish::Stop) => Finish::Stop,
        Ok(wire::Finish::Length) => Finish::Length,
        Ok(wire::Finish::Error) => Finish::Error,
        Ok(wire::Finish::Unspecified) => return Err(WireError::Missing { field: "End.finish" }),
        Err(unknown) => return Err(WireError::invalid("End.finish", unknown.to_string())),
    };
    Ok(End { by, finish, detail: end.detail })
}

fn failure_to_wire(failure: Failure) -> wire::Failure {
    match failure {
        Failure::HandoffLapsed => wire::Failure::HandoffLapsed,
        Failure::HandoffTimeout => wire::Failure::HandoffTimeout,
        Failure::QueueFull => wire::Failure::QueueFull,
        Failure::TooLarge => wire::Failure::TooLarge,
        Failure::Invalid => wire::Failure::Invalid,
        Failure::Engine => wire::Failure::Engine,
        Failure::Draining => wire::Failure::Draining,
        Failure::Deadline => wire::Failure::Deadline,
    }
}

fn failure_from_wire(failure: i32) -> Result<Failure, WireError> {
    Ok(match wire::Failure::try_from(failure) {
        Ok(wire::Failure::HandoffLapsed) => Failure::HandoffLapsed,
        Ok(wire::Failure::HandoffTimeout) => Failure::HandoffTimeout,
        Ok(wire::Failure::QueueFull) => Failure::QueueFull,
        Ok(wire::Failure::TooLarge) => Failure::TooLarge,
        Ok(wire::Failure::Invalid) => Failure::Invalid,
        Ok(wire::Failure::Engine) => Failure::Engine,
        Ok(wire::Failure::Draining) => Failure::Draining,
        Ok(wire::Failure::Deadline) => Failure::Deadline,
        Ok(wire::Failure::Unspecified) => return Err(WireError::Missing { field: "Failed.why" }),
        Err(unknown) => return Err(WireError::invalid("Failed.why", unknown.to_string())),
    })
}
