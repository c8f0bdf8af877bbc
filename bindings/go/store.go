package epl

import (
	"unsafe"

	"epl.ai/go/internal/raw"
)

// Store is where the processes of one job find each other. One process serves it, by a thread of its own.
type Store struct{ child }

// NewStore serves a store. address is "HOST:PORT" of this process as the others reach it; port 0: any that is free;
// empty: for processes of this host. secret is what others must know; empty: one is drawn, which the ID has in it.
func (e *Engine) NewStore(address, secret string) (*Store, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	o := raw.NewStoreOptions()
	if address != "" {
		o.Address, o.AddressLength = raw.AllocText(address)
		defer raw.FreeText(o.Address)
	}
	if secret != "" {
		o.Secret, o.SecretLength = raw.AllocText(secret)
		defer raw.FreeText(o.Secret)
	}
	made, failure := raw.StoreCreate(engine, &o)
	if failure != nil {
		return nil, taken(failure)
	}
	s := &Store{}
	s.adopt(e, unsafe.Pointer(made), func(p unsafe.Pointer) { raw.StoreDestroy((*raw.Store)(p)) })
	return watch(s, &s.handle), nil
}

// Address is "HOST:PORT" with the port that the store has.
func (s *Store) Address() string {
	at := s.enter()
	if at == nil {
		return ""
	}
	defer s.leave()
	return raw.StoreAddress((*raw.Store)(at))
}

// ID is address and secret as one text, for SessionOptions.Rendezvous of the other processes.
func (s *Store) ID() (string, error) {
	at := s.enter()
	if at == nil {
		return "", ErrClosed
	}
	defer s.leave()
	return given(raw.StoreId((*raw.Store)(at)))
}
