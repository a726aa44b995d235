//! What tests of several modules share.

pub(crate) mod harness;

#[cfg(test)]
mod drivers;
#[cfg(test)]
mod posts;

/// Makes two tests of each function that takes a [`crate::DriverChoice`], one for each driver.
/// Where the kernel has no io_uring for us, the second says so and is over.
#[cfg(test)]
macro_rules! on_each_driver {
    ($($name:ident),* $(,)?) => {
        mod over_epoll {
            $(
                #[test]
                fn $name() {
                    super::$name(crate::DriverChoice::Epoll);
                }
            )*
        }

        mod over_io_uring {
            $(
                #[test]
                fn $name() {
                    match crate::why_not_io_uring() {
                        None => super::$name(crate::DriverChoice::IoUring),
                        Some(reason) => eprintln!("io_uring was not tested: {reason}"),
                    }
                }
            )*
        }
    };
}

#[cfg(test)]
pub(crate) use on_each_driver;
