// The executor: one thread that runs the operations of all streams.
#pragma once
#include "call.h"
#include "driver.h"

namespace driver {

/// Starts the executor thread.
void start_executor();

/// Enqueues work behind all that a stream has, or adds it to the stream's capture.
CUresult enqueue(Stream& stream, Work work, GraphNodeType type);

/// Enqueues work that no capture takes, with more records to wait for. Returns its record.
RecordPtr append(Stream& stream, std::shared_ptr<const Work> work, std::vector<RecordPtr> waits);

/// Waits until all records are done, and orders the host behind them. Gives the lock away meanwhile.
void wait_for(const std::vector<RecordPtr>& records, std::unique_lock<std::mutex>& lock);

/// Says whether a record is done; if so, orders the host behind it.
bool poll(const RecordPtr& record, std::unique_lock<std::mutex>& lock);

/// Returns the records of all that a stream's synchronisation waits for.
std::vector<RecordPtr> records_of(Stream& stream);

/// Orders the host behind a clock.
void host_saw(const Clock& clock);

/// Waits for all streams of a context.
void drain(Context& context, std::unique_lock<std::mutex>& lock);

}  // namespace driver
