//! The network's side of fetching: one GET, each hop judged by its host, connected to the address that was looked at and to no other.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use reqwest::{Client, StatusCode, Url, header, redirect};
use toolgate_runtime::{
    BoxFuture,
    core::tool::Effect,
    fetch::{Fetch, FetchError, covers, covers_private, is_public, literal},
    gate::Permit,
};

/// How long all of it may take. An image of a few megabytes comes within seconds, and the tools' own limits are longer.
const LIMIT: Duration = Duration::from_secs(30);

/// How long a connection may take, all addresses of a host together: one that nobody answers at must leave time for the next.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Redirects that are followed; honest ones are one or two.
const MOST_HOPS: usize = 5;

/// Says which addresses a name has. A seam, so that tests need no network.
pub trait Resolve: Send + Sync {
    /// The addresses of a host.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// As the system says.
struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Fetches over HTTP. It knows no proxy, no cookie and no key, and touches nothing before the first address is asked for.
pub struct HttpFetch {
    resolver: Arc<dyn Resolve>,
}

impl HttpFetch {
    /// Names are resolved by the system.
    pub fn new() -> Self {
        Self::resolving(Arc::new(System))
    }

    /// Names are resolved by this.
    pub fn resolving(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver }
    }

    async fn follow(&self, permit: &Permit, address: &str, most: usize) -> Result<Vec<u8>, FetchError> {
        let mut url = parsed(address)?;
        for _ in 0..=MOST_HOPS {
            let host = host_of(&url)?;
            if !covers(permit, &host) {
                let by = format!("the address leads on to {host}, which was not allowed");
                return Err(FetchError::Blocked { effect: Effect::Connect(host), by });
            }
            let answer = self.client(permit, &url, &host).await?.get(url.clone()).send().await;
            let mut answer = answer.map_err(|error| failed(&url, &error))?;
            let status = answer.status();
            if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
                let to = answer.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
                let to = to.ok_or_else(|| FetchError::Failed(format!("{} redirects to nowhere", shown(&url))))?;
                let next = url
                    .join(to)
                    .map_err(|error| FetchError::Failed(format!("{} redirects to no address: {error}", shown(&url))))?;
                url = parsed(next.as_str())?;
                continue;
            }
            if !status.is_success() {
                return Err(FetchError::Status { address: shown(&url), status: status.as_u16() });
            }
            if let Some(length) = answer.content_length().filter(|length| *length > most as u64) {
                return Err(FetchError::TooLarge(Some(length)));
            }
            let mut bytes = Vec::new();
            while let Some(chunk) = answer.chunk().await.map_err(|error| failed(&url, &error))? {
                if bytes.len() + chunk.len() > most {
                    return Err(FetchError::TooLarge(None));
                }
                bytes.extend_from_slice(&chunk);
            }
            return Ok(bytes);
        }
        Err(FetchError::Failed(format!("{} redirects more than {MOST_HOPS} times", shown(&parsed(address)?))))
    }

    /// A client that connects to the addresses that were looked at, whatever the name leads to a moment later.
    async fn client(&self, permit: &Permit, url: &Url, host: &str) -> Result<Client, FetchError> {
        let port = url.port_or_known_default().unwrap_or(80);
        let addresses = match literal(host) {
            Some(address) => vec![SocketAddr::new(address, port)],
            None => {
                let found = self.resolver.resolve(host, port).await;
                found.map_err(|error| FetchError::Failed(format!("{host} cannot be resolved: {error}")))?
            }
        };
        if addresses.is_empty() {
            return Err(FetchError::Failed(format!("{host} has no address")));
        }
        if let Some(private) = addresses.iter().find(|address| !is_public(address.ip()))
            && !covers_private(permit, host)
        {
            let is = match literal(host) {
                Some(_) => "is".to_owned(),
                None => format!("leads to {}, which is", private.ip()),
            };
            let by = format!("{host} {is} no public address; a rule `WebFetch(domain:{host})` would allow it");
            return Err(FetchError::Blocked { effect: Effect::Connect(host.to_owned()), by });
        }
        let mut client = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .resolve_to_addrs(host, &addresses);
        if url.scheme() != "https" {
            // It will never speak TLS (redirects are followed here), and loading the system's roots costs more than a local answer.
            client = client.tls_certs_only([]);
        }
        client.build().map_err(|error| failed(url, &error))
    }
}

impl Default for HttpFetch {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetch for HttpFetch {
    fn host(&self, address: &str) -> Result<String, FetchError> {
        host_of(&parsed(address)?)
    }

    fn get<'a>(
        &'a self,
        permit: &'a Permit,
        address: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        Box::pin(async move {
            let followed = tokio::time::timeout(LIMIT, self.follow(permit, address, most)).await;
            followed.unwrap_or_else(|_| Err(FetchError::Failed(format!("it took longer than {} s", LIMIT.as_secs()))))
        })
    }
}

/// An address that may be fetched. Its host is in one form, however it was spelled: numbers as four parts, names in small letters without
/// a dot at the end.
fn parsed(address: &str) -> Result<Url, FetchError> {
    let mut url =
        Url::parse(address).map_err(|error| FetchError::Address(format!("`{address}` is no address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FetchError::Address(format!(
            "only http and https addresses are fetched, and `{}:` is neither",
            url.scheme()
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FetchError::Address("an address with a user name or password in it is not fetched".into()));
    }
    if let Some(plain) = url.host_str().and_then(|host| host.strip_suffix('.')).map(str::to_owned) {
        url.set_host(Some(&plain))
            .map_err(|error| FetchError::Address(format!("`{address}` is no address: {error}")))?;
    }
    Ok(url)
}

fn host_of(url: &Url) -> Result<String, FetchError> {
    url.host_str().map(str::to_owned).ok_or_else(|| FetchError::Address("the address has no host".into()))
}

/// An address without what may be secret in it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

fn failed(url: &Url, error: &reqwest::Error) -> FetchError {
    let what = if error.is_builder() {
        "the HTTP client does not start (no TLS roots)"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the answer broke off"
    };
    FetchError::Failed(format!("{}: {what}", shown(url)))
}
