// Package epl trains neural networks inside a Go program: an ONNX file goes in, a trained one comes out.
//
// A [Model] is read from a file. A [Trainer] says what to learn and how (loss, optimizer, what is frozen), a [Strategy]
// how the work is spread over ranks. The three make a [Plan], in which everything is decided and for which nothing is
// allocated yet: memory is known to the byte. A plan makes a [Session], which runs steps.
//
// # Lifetimes
//
// What is made must be closed. Children keep what they were made from alive, so the order does not matter. Close may be
// called twice, and beside a call of another goroutine, which then goes on to its end. A call after Close gives
// [ErrClosed]. What the garbage collector finds unclosed is reported to [OnLeak], and not freed.
//
// # Errors
//
// An error of the library is an *[Error]. Its code is tested by errors.Is:
//
//	if errors.Is(err, epl.NotFound) { ... }
//
// # Contexts
//
// Calls that read, write, compute or wait take a context. Its end stops the call before it changes anything; a cancel is
// then both epl.Cancelled and context.Canceled, a deadline both epl.DeadlineExceeded and context.DeadlineExceeded.
//
// # Goroutines
//
// Engines, models, plans, tensors, stores and feeds may be used by any goroutines at once. A session, trainer, strategy,
// dataset and evaluation have one caller at a time; a second one gets [Busy].
package epl
