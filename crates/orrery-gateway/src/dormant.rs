//! A future that is asked only when it has called.
//!
//! A task that waits for several things asks all of them whenever one of them calls. A connection asks two of them with every
//! request that happen once in its life, and asking takes locks. [`Dormant`] gives its future a waker of its own, and asks it
//! only if that was the one to wake the task.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Debug)]
pub(crate) struct Dormant<F> {
    future: F,
    bell: Option<Arc<Bell>>,
}

/// Wakes the task, and leaves a note.
#[derive(Debug)]
struct Bell {
    task: Waker,
    has_rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl<F> Dormant<F> {
    pub fn new(future: F) -> Dormant<F> {
        Dormant { future, bell: None }
    }

    /// The bell to ring when there is something to ask for; `None` while there is not. Another task gets another bell.
    fn due(&mut self, task: &Waker) -> Option<Arc<Bell>> {
        match &self.bell {
            Some(bell) if bell.task.will_wake(task) => {
                // Taken down before the future is asked: if it calls meanwhile, it is asked again.
                let has_rung = bell.has_rung.load(Ordering::Relaxed) && bell.has_rung.swap(false, Ordering::Acquire);
                has_rung.then(|| Arc::clone(bell))
            }
            _ => {
                let bell = Arc::new(Bell {
                    task: task.clone(),
                    has_rung: AtomicBool::new(false),
                });
                self.bell = Some(Arc::clone(&bell));
                Some(bell)
            }
        }
    }
}

impl<F: Future + Unpin> Future for Dormant<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.due(cx.waker()) {
            Some(bell) => Pin::new(&mut self.future).poll(&mut Context::from_waker(&bell.into())),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often it is asked, and ends when it is asked after `end`.
    #[derive(Default)]
    struct Counted {
        n_asked: AtomicUsize,
        waker: Mutex<Option<Waker>>,
        is_over: AtomicBool,
    }

    impl Counted {
        fn call(&self) {
            self.waker.lock().unwrap().take().unwrap().wake();
        }
    }

    fn dormant(counted: &Counted) -> Dormant<impl Future<Output = ()> + Unpin> {
        Dormant::new(poll_fn(|cx| {
            counted.n_asked.fetch_add(1, Ordering::Relaxed);
            *counted.waker.lock().unwrap() = Some(cx.waker().clone());
            match counted.is_over.load(Ordering::Relaxed) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }))
    }

    #[test]
    fn a_future_is_asked_once_and_then_only_when_it_has_called() {
        let counted = Counted::default();
        let mut waiting = pin!(dormant(&counted));
        let mut ask = |waker: &Waker| waiting.as_mut().poll(&mut Context::from_waker(waker));
        let n_asked = || counted.n_asked.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert!(ask(Waker::noop()).is_pending());
            assert_eq!(n_asked(), 1);
        }
        counted.call();
        for _ in 0..3 {
            assert!(ask(Waker::noop()).is_pending());
            assert_eq!(n_asked(), 2);
        }
        counted.is_over.store(true, Ordering::Relaxed);
        counted.call();
        assert!(ask(Waker::noop()).is_ready());
    }

    #[test]
    fn a_future_that_moved_to_another_task_wakes_that_one() {
        #[derive(Default)]
        struct Woken(AtomicBool);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let counted = Counted::default();
        let mut waiting = pin!(dormant(&counted));
        let tasks = [Arc::new(Woken::default()), Arc::new(Woken::default())];
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        counted.call();
        let woken = tasks.map(|task| task.0.load(Ordering::Relaxed));
        assert_eq!(woken, [false, true]);
    }
}
