//! The pods: a process that answers each request at once, by the size in its path.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::Failure;

/// Environment variable of the process with the pods.
pub(crate) const SERVER: &str = "SOURCES_BENCH_SERVER";
/// Series that a scrape reads from each page. The others have other names.
pub(crate) const SERIES: usize = 20;
/// The sizes of pages.
const SIZES: [usize; 6] = [2 << 10, 4 << 10, 20 << 10, 64 << 10, 1 << 20, 4_000_000];

/// Serves pages until standard input ends.
pub(crate) fn run() -> Result<(), Failure> {
    #[expect(clippy::disallowed_methods, reason = "the end of a child process")]
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let pages: Arc<BTreeMap<usize, Vec<u8>>> =
            Arc::new(SIZES.iter().map(|size| (*size, response(&page(*size)))).collect());
        let served = Arc::new(AtomicU64::new(0));
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve(stream, Arc::clone(&pages), Arc::clone(&served)));
        }
    })
}

/// Answers the requests of a connection: `/SIZE` with a page, `/served` with the number of pages.
async fn serve(
    mut stream: tokio::net::TcpStream,
    pages: Arc<BTreeMap<usize, Vec<u8>>>,
    served: Arc<AtomicU64>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::with_capacity(1 << 10);
    loop {
        request.clear();
        while !request.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let path = request.strip_prefix(b"GET /").unwrap_or_default();
        let digits: Vec<u8> = path.iter().copied().take_while(u8::is_ascii_digit).collect();
        let size = String::from_utf8(digits).ok().and_then(|digits| digits.parse::<usize>().ok());
        if let Some(page) = size.and_then(|size| pages.get(&size)) {
            stream.write_all(page).await?;
            served.fetch_add(1, Ordering::Relaxed);
        } else {
            let served = served.load(Ordering::Relaxed).to_string();
            stream.write_all(&response(&served)).await?;
        }
    }
}

fn response(page: &str) -> Vec<u8> {
    let length = page.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\ncontent-length: {length}\r\n\r\n{page}"
    )
    .into_bytes()
}

/// A page of about this size: counters that are read, and histograms of other names.
fn page(size: usize) -> String {
    let mut page = "# HELP requests_total Requests by path.\n# TYPE requests_total counter\n".to_owned();
    for path in 0..SERIES {
        // Writing to a String cannot fail.
        let _ =
            writeln!(page, "requests_total{{method=\"GET\",path=\"/api/v1/items/{path}\"}} {}", path * 17);
    }
    for family in 0.. {
        let name = format!("handler_{family}_duration_seconds");
        let _ = writeln!(page, "# HELP {name} Latency of handler {family} in seconds.");
        let _ = writeln!(page, "# TYPE {name} histogram");
        for code in ["200", "404", "500"] {
            for bound in ["0.005", "0.01", "0.05", "0.1", "0.5", "1", "5", "+Inf"] {
                if page.len() >= size {
                    return page;
                }
                let _ = writeln!(
                    page,
                    "{name}_bucket{{code=\"{code}\",handler=\"/api/v1/{family}\",le=\"{bound}\"}} 1027"
                );
            }
            let _ = writeln!(page, "{name}_sum{{code=\"{code}\",handler=\"/api/v1/{family}\"}} 113.72519");
            let _ = writeln!(page, "{name}_count{{code=\"{code}\",handler=\"/api/v1/{family}\"}} 1027");
        }
    }
    page
}

/// The process with the pods. Dropping this value stops the process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(SERVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }

    /// The number of pages that were served.
    pub(crate) fn served(&self) -> Result<u64, Failure> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.write_all(b"GET /served HTTP/1.1\r\n\r\n")?;
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(String::from_utf8(body)?.parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
